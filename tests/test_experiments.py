"""Every experiment runs from its command line, writes its results, and does not do a finished run again."""

import json
from dataclasses import replace

import pytest
import torch
import typer
from typer.testing import CliRunner

from degp.files import write_json
from degp.report import save_results
from degp.typing import Batch
from experiments import __main__ as experiments
from experiments import cifar10, cifar10_corruptions, image_runs

NAMES = sorted(typer.main.get_command(experiments.app).commands)
IMAGES = [name for name in NAMES if name.startswith(("fmnist", "cifar"))]


def run(name, *options):
    result = CliRunner().invoke(experiments.app, [name, *options])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


def metrics_below(folder):
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("metrics.json"))]


@pytest.fixture(autouse=True)
def known_commit(monkeypatch):
    """Git need not look through the tree for every record."""
    monkeypatch.setenv("DEGP_COMMIT", "of the test")


@pytest.fixture(autouse=True)
def small_tables(monkeypatch):
    """Tables of thirty rows in place of the UCI sets, which may not be at hand."""

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
            pytest.skip("its data are not at hand")
        raise
    results = metrics_below(tmp_path)
    assert results
    assert all(result["records"] and result["config"] and "commit" in result["environment"] for result in results)


def test_finished_runs_are_not_done_again(tmp_path):
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


def test_when_the_time_is_up_it_says_so_and_goes_on_later(tmp_path):
    options = ("--smoke", "--out", str(tmp_path), "--methods", "de")
    assert "the same command goes on from there" in run("cifar10", *options, "--minutes", "0")
    assert not metrics_below(tmp_path)
    run("cifar10", *options)
    assert len(metrics_below(tmp_path)[0]["records"]) == 1
    assert not list(tmp_path.rglob("training"))  # the unfinished state goes when the members are kept


@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_not_for_ranks_says_so_once_and_does_nothing(tmp_path, monkeypatch, rank):
    assert set(NAMES) == {*experiments.ONE_PROCESS, *IMAGES}
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in experiments.ONE_PROCESS:
        result = CliRunner().invoke(experiments.app, [name, "--out", str(tmp_path)])
        assert result.exit_code == 2
        told = f"{name} must be started as one process, but torchrun has started 2"
        assert result.output.startswith(told) if rank == 0 else result.output == ""
    assert not list(tmp_path.iterdir())


def test_a_network_without_a_score_has_no_empty_panel(tmp_path, monkeypatch):
    facts = {**cifar10.planned("resnet20", "de", "0", 200, smoke=False)[0].facts, "corruption": "fog", "severity": 1}
    older = {**facts, "network": "older", "nll": 1.0}
    save_results(tmp_path, config={}, records=[{**facts, "nll": 1.0, "nll_calibrated": 0.9}, older])
    drawn = {}
    monkeypatch.setattr(cifar10_corruptions, "box_panels", lambda panels, *, x_label, y_label: (y_label, panels))
    monkeypatch.setattr(cifar10_corruptions, "save_figure", lambda figure, path: drawn.update({path.stem: figure[1]}))
    cifar10_corruptions._figures(image_runs.Place.open(tmp_path, None, "cpu", None, smoke=False))
    assert {name: list(panels) for name, panels in drawn.items()} == {
        "nll": ["resnet20", "older"],
        "nll_calibrated": ["resnet20"],
    }


def test_runs_of_different_length_have_panels_of_their_own(tmp_path):
    place = image_runs.Place.open(tmp_path, None, "cpu", None, smoke=False)
    facts = cifar10.planned("resnet20", "de", "0", 200, smoke=False)[0].facts
    curve = {**facts, "curve": "loss", "x": [1, 2], "y": [2.0, None]}
    write_json(tmp_path / "curves.json", [curve])
    assert list(image_runs._lines_in(place, "loss")) == ["resnet20"]
    write_json(tmp_path / "curves.json", [curve, {**curve, "epochs": 20}])
    assert list(image_runs._lines_in(place, "loss")) == ["resnet20, 200 epochs", "resnet20, 20 epochs"]


def test_unknown_methods_are_refused_by_name():
    result = CliRunner().invoke(experiments.app, ["cifar10", "--methods", "de,map"])
    assert result.exit_code == 2
    assert "there is no map" in result.output


def test_records_tell_runs_apart():
    runs = cifar10.planned("resnet20", ",".join(cifar10.METHODS), "0,1", 200, smoke=False)
    assert len({run.name for run in runs}) == len(runs) == 10
    assert all(set(run.facts) == set(runs[0].facts) for run in runs)


def test_another_start_of_the_temperature_is_another_run_and_says_so():
    run = cifar10.planned("resnet20", "degp", "0", 200, smoke=False)[0]
    other = replace(run, recipe=replace(run.recipe, temperature=0.1))
    assert image_runs.is_in([run.facts], run)
    assert not image_runs.is_in([run.facts], other)
    assert image_runs.label(other.facts) == f"{image_runs.label(run.facts)}, τ from 0.1"


def test_a_full_gpu_ends_in_a_message_and_nothing_half_written(tmp_path, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")

    monkeypatch.setattr(image_runs, "train", full)
    result = CliRunner().invoke(experiments.app, ["cifar10", "--smoke", "--out", str(tmp_path), "--methods", "de"])
    assert result.exit_code == 2
    assert "it is full (CUDA out of memory); end other programs" in result.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
