"""Every experiment runs from its command line, writes its results, and skips finished runs."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import typer
from typer.testing import CliRunner

from degp.report import load_results, save_results
from degp.runtime.distributed import start
from degp.runtime.files import write_json
from degp.typing import Batch
from experiments import __main__ as experiments
from experiments import cifar10, cifar10_corruptions
from experiments.cifar10_prior import PRIORS
from experiments.protocols import image_names, image_runs
from experiments.protocols.image_smoke import smoke_runs
from experiments.protocols.independent_runs import earlier_records

NOT_EXPERIMENTS = {"data", "pages"}  # list and fetch data sets; write the pages
NAMES = sorted(set(typer.main.get_command(experiments.app).commands) - NOT_EXPERIMENTS)
IMAGES = [name for name in NAMES if name.startswith(("fmnist", "cifar"))]


def run(name, *options):
    result = CliRunner().invoke(experiments.app, [name, *options])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


def refused(name, *options):
    """The error message, without the frame that may be around it."""
    result = CliRunner().invoke(experiments.app, [name, *map(str, options)])
    assert result.exit_code == 2, f"{result.output}\n{result.exception!r}"
    return " ".join(result.output.replace("│", " ").split())


def metrics_below(folder):
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("metrics.json"))]


@pytest.fixture(autouse=True)
def known_commit(monkeypatch):
    """No call of git per record."""
    monkeypatch.setenv("DEGP_COMMIT", "of the test")


@pytest.fixture(autouse=True)
def small_tables(monkeypatch):
    """Tables of thirty rows in place of the UCI sets, which may be unavailable."""

    def table(name):
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(30, 4, generator=generator)
        return Batch(inputs, inputs.sum(1, keepdim=True) + 0.1 * torch.randn(30, 1, generator=generator))

    monkeypatch.setattr("experiments.uci.uci", table)


def options_of(name):
    return ["--sets", "boston", "--protocols", "ours", "--device", "cpu"] if name == "uci" else []


@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path):
    try:
        run(name, "--smoke", "--out", str(tmp_path), *options_of(name))
    except AssertionError as failure:
        if "must be in a local copy" in str(failure):
            pytest.skip("its data are unavailable")
        raise
    results = metrics_below(tmp_path)
    assert results
    assert all(result["records"] and result["config"] and "commit" in result["environment"] for result in results)


def test_finished_runs_are_skipped(tmp_path):
    options = ("--smoke", "--out", str(tmp_path), "--methods", "de,rde")
    assert "seed 0: 2 epochs" in run("cifar10", *options)
    before = metrics_below(tmp_path)[0]["records"]
    assert "seed 0: 2 epochs" not in run("cifar10", *options)
    assert metrics_below(tmp_path)[0]["records"] == before
    run("cifar10", "--smoke", "--out", str(tmp_path), "--methods", "de,rms")
    assert [record["method"] for record in metrics_below(tmp_path)[0]["records"]] == ["DE", "rDE", "RMS"]


def test_trained_members_are_not_trained_again(tmp_path, monkeypatch):
    options = ("--smoke", "--out", str(tmp_path), "--methods", "de")
    run("cifar10", *options)
    (tmp_path / "smoke" / "metrics.json").unlink()
    monkeypatch.setattr(image_runs, "train", None)
    run("cifar10", *options)
    assert len(metrics_below(tmp_path)[0]["records"]) == 1


def test_a_run_out_of_time_says_so_and_resumes_later(tmp_path):
    options = ("--smoke", "--out", str(tmp_path), "--methods", "de")
    assert "the same command resumes" in run("cifar10", *options, "--minutes", "0")
    assert not metrics_below(tmp_path)
    run("cifar10", *options)
    assert len(metrics_below(tmp_path)[0]["records"]) == 1
    assert not list(tmp_path.rglob("training"))  # deleted when the members are saved


@pytest.mark.parametrize("rank", [0, 1])
def test_experiments_for_one_process_refuse_ranks_once(tmp_path, monkeypatch, rank):
    assert set(NAMES) == {*experiments.ONE_PROCESS, *IMAGES}
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in experiments.ONE_PROCESS:
        result = CliRunner().invoke(experiments.app, [name, "--out", str(tmp_path)])
        assert result.exit_code == 2
        message = f"{name} must be started as one process, but torchrun has started 2"
        assert result.output.startswith(message) if rank == 0 else result.output == ""
    assert not list(tmp_path.iterdir())


def test_a_network_without_a_score_has_no_empty_panel(tmp_path, monkeypatch):
    facts = {**cifar10.planned("resnet20", "de", "0", 200, smoke=False)[0].facts, "corruption": "fog", "severity": 1}
    older = {**facts, "network": "older", "nll": 1.0}
    save_results(tmp_path, config={}, records=[{**facts, "nll": 1.0, "nll_unfitted": 0.9}, older])
    drawn = {}
    monkeypatch.setattr(cifar10_corruptions, "box_panels", lambda panels, *, x_label, y_label: (y_label, panels))
    monkeypatch.setattr(cifar10_corruptions, "save_figure", lambda figure, path: drawn.update({path.stem: figure[1]}))
    cifar10_corruptions._figures(image_runs.Place.open(tmp_path, None, "cpu", None, smoke=False))
    assert {name: list(panels) for name, panels in drawn.items()} == {
        "nll": ["ResNet-20", "older"],
        "nll_unfitted": ["ResNet-20"],
    }


def test_runs_of_different_length_have_separate_panels(tmp_path):
    place = image_runs.Place.open(tmp_path, None, "cpu", None, smoke=False)
    facts = cifar10.planned("resnet20", "de", "0", 200, smoke=False)[0].facts
    curve = {**facts, "curve": "loss", "x": [1, 2], "y": [2.0, None]}
    write_json(tmp_path / "curves.json", [curve])
    assert list(image_runs._lines_in(place, "loss")) == ["ResNet-20"]
    write_json(tmp_path / "curves.json", [curve, {**curve, "epochs": 20}])
    assert list(image_runs._lines_in(place, "loss")) == ["ResNet-20, 200 epochs", "ResNet-20, 20 epochs"]


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("cifar10", ["--methods", "de,map"], "--methods: there is no map; choose among de, rde"),
        ("cifar10", ["--methods="], "--methods must have at least one of de, rde, rms, degp, degp0, but it is ''"),
        ("cifar10", ["--device", "tpu"], "'tpu' is not one of 'cpu', 'cuda'"),
        ("cifar10", ["--device", "mps"], "'mps' is not one of 'cpu', 'cuda'"),
        ("cifar10", ["--seeds="], "--seeds must be integers such as 0,1,2, but it is ''"),
        ("cifar10", ["--seeds=a"], "--seeds must be integers such as 0,1,2, but it is 'a'"),
        ("cifar10", ["--network", "resnet20,resnet56"], "--network must be one of resnet20, resnet56, resnet110, but"),
        ("cifar10", ["--epochs", "0"], "Invalid value for '--epochs'"),
        ("cifar10", ["--minutes", "-1"], "Invalid value for '--minutes'"),
        ("cifar10_alpha", ["--alphas="], "--alphas must be numbers of at least 0 such as 0.01,0.1, but it is ''"),
        ("cifar10_alpha", ["--alphas=nan"], "--alphas must be numbers of at least 0 such as 0.01,0.1, but it is 'nan'"),
        ("cifar10_sharing", ["--alpha=-1"], "'--alpha': it must be a number of at least 0, but it is -1.0"),
        ("cifar10_sharing", ["--prior", "a,b"], "--prior must be one of lite resnet8, "),
        ("cifar10_corruptions", ["--network", "foo"], "--network must be one of resnet20, resnet56, resnet110, shared"),
        ("uci", ["--protocols", "theirs"], "--protocols: there is no theirs; choose among paper, ours"),
        ("bo", ["--problems", "rosenbrock"], "--problems: there is no rosenbrock; choose among branin"),
        ("active", ["--strategies", "greed"], "--strategies: there is no greed; choose among joint information"),
        ("intervals", ["--sets", "iris"], "--sets: there is no iris; choose among boston"),
    ],
)
def test_an_invalid_option_is_refused_by_name_before_anything_is_done(tmp_path, name, options, message):
    assert message in refused(name, "--smoke", "--out", tmp_path, *options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["tpu", "mps", "cuda:0"])
def test_ranks_run_on_a_cpu_or_on_gpus(device):
    with pytest.raises(ValueError, match=f"the device must be 'cpu' or 'cuda', but it is '{device}'"):
        start(device=device)


def test_blanks_between_names_and_numbers_do_not_matter():
    spaced = cifar10.planned("resnet20", "de, rde", "0, 1", 200, smoke=False)
    plain = cifar10.planned("resnet20", "de,rde", "0,1", 200, smoke=False)
    assert [run.facts for run in spaced] == [run.facts for run in plain]


DAMAGED = {
    "{}": "metrics.json must have config and records, but it has no config and no records; restore",
    '{"config": {}, "environment": {}, "records": [{"seed": 0}]}': "but record 0 has no ",
    '{"config": {}, "environment": {}, "rec': "metrics.json must be JSON as it was written, but Unterminated string",
}


@pytest.mark.parametrize("name", ["cifar10", "cifar10_corruptions", "uci", "bandits", "active", "bo", "intervals"])
@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_results_are_named_before_anything_is_trained(tmp_path, name, content):
    for folder in (tmp_path, tmp_path / "smoke"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").write_text(content, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    message = refused(name, "--smoke", "--out", tmp_path, *options_of(name))
    assert DAMAGED[content] in message and str(tmp_path) in message and "delete it" in message
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("content", ['[{"network": "resn', "{}", '[{"network": "resnet20"}]'])
@pytest.mark.parametrize("name", ["cifar10", "bandits"])
def test_damaged_curves_are_named_before_anything_is_trained(tmp_path, name, content):
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "curves.json").write_text(content, encoding="utf-8")
    assert f"{tmp_path}/smoke/curves.json must" in refused(name, "--smoke", "--out", tmp_path)
    assert len(list(tmp_path.rglob("*"))) == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_that_is_not_writable_is_refused_before_anything_is_trained(tmp_path, name):
    (tmp_path / "file").touch()
    message = refused(name, "--smoke", "--out", tmp_path / "file" / "below", *options_of(name))
    assert "must be a folder that can be written to, but Not a directory; choose another with --out" in message
    assert "seed" not in message and "training" not in message


def test_a_note_written_by_hand_stays(tmp_path):
    options = ("--smoke", "--out", str(tmp_path), "--methods")
    run("cifar10", *options, "de")
    path = tmp_path / "smoke" / "metrics.json"
    results = load_results(path.parent)
    write_json(path, results | {"config": results["config"] | {"note": "beside other work"}})
    run("cifar10", *options, "de,rde")
    after = load_results(path.parent)
    assert after["config"] == results["config"] | {"note": "beside other work", "method": "rde", "beta": 0.1}
    assert len(after["records"]) == 2


def test_a_note_is_not_a_setting(tmp_path):
    save_results(tmp_path, config={"rounds": 5, "note": "by hand"}, records=[{"trial": 0}])
    assert earlier_records(tmp_path, {"rounds": 5}, ("trial",)) == [{"trial": 0}]
    with pytest.raises(typer.BadParameter, match="other settings"):
        earlier_records(tmp_path, {"rounds": 6}, ("trial",))


def test_the_command_of_a_result_can_be_run_again(tmp_path):
    options = ["--smoke", "--out", str(tmp_path), "--methods", "de, rde", "--minutes", "0"]
    program = "import sys; from degp.report import environment; print(environment()['command'])"
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "__main__.py").write_text(program, encoding="utf-8")
    started = [sys.executable, "-m", "experiment", *options]
    done = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shlex.split(done.stdout) == ["python", "-m", "experiment", *options]


def test_priors_of_smoke_runs_differ_as_the_full_ones():
    shared = cifar10.recipe("resnet20", "degp")
    runs = [image_runs.Run("resnet20", name, replace(shared, prior=prior), 0) for name, prior in PRIORS.items()]
    small = [run.recipe.prior for run in smoke_runs(runs)]
    forms = {(len(prior.make_features()), prior.num_draws, prior.redrawn, prior.centred) for prior in small}
    assert len(forms) == len(PRIORS)
    assert all(len(prior.make_features()) < 40 and prior.num_draws < 10 for prior in small)


def test_corruptions_are_not_added_to_the_results_of_another_experiment(tmp_path):
    run = cifar10.planned("resnet20", "de", "0", 200, smoke=False)[0]
    save_results(tmp_path, config={}, records=[run.facts])
    message = refused("cifar10_corruptions", "--out", tmp_path, "--device", "cpu")
    assert f"{tmp_path}/metrics.json must have corruption, severity, but record 0 has no" in message


def test_corruptions_without_members_name_the_command_that_trains_them(tmp_path):
    checkpoints = tmp_path / "none here"
    options = ("--methods", "de", "--seeds", "0", "--epochs", "3", "--checkpoints", checkpoints)
    message = refused("cifar10_corruptions", "--out", tmp_path, "--device", "cpu", *options)
    assert message.count("must have the members") == 1
    assert message.endswith(
        "python -m experiments cifar10 --network resnet20 --methods de --seeds 0 --epochs 3 "
        f"--checkpoints '{checkpoints}'"
    )


def test_records_distinguish_runs():
    runs = cifar10.planned("resnet20", ",".join(cifar10.METHODS), "0,1", 200, smoke=False)
    assert len({run.name for run in runs}) == len(runs) == 10
    assert all(set(run.facts) == set(runs[0].facts) for run in runs)


def test_another_initial_temperature_is_another_run_with_another_label():
    run = cifar10.planned("resnet20", "degp", "0", 200, smoke=False)[0]
    other = replace(run, recipe=replace(run.recipe, temperature=0.1))
    assert image_runs.is_in([run.facts], run)
    assert not image_runs.is_in([run.facts], other)
    assert image_names.label(other.facts) == f"{image_names.label(run.facts)}, τ from 0.1"
    assert cifar10.is_superseded(other.facts) and not cifar10.is_superseded(run.facts)


def test_a_full_gpu_ends_in_a_message_and_nothing_half_written(tmp_path, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")

    monkeypatch.setattr(image_runs, "train", full)
    result = CliRunner().invoke(experiments.app, ["cifar10", "--smoke", "--out", str(tmp_path), "--methods", "de"])
    assert result.exit_code == 2
    assert "it is full (CUDA out of memory); end other programs" in result.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
