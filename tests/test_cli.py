"""The command line: a table in, predictions out, and a clear line with the right exit code where that cannot be."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from degp.cli import app, main
from degp.cli import training as training_commands
from degp.data import data_set
from degp.saving import load_model
from degp.selection import Contest
from degp.sklearn import DEGPRegressor
from degp.table_model import predict_file, predict_rows
from degp.tables import read_table

QUICK = ["--members", "3", "--hidden", "8", "--max-epochs", "4"]
COMMANDS = ["demo", "fit", "predict", "evaluate", "report", "update", "data"]


def run(*arguments):
    """A command as a person would give it."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def houses(rows, seed):
    """A small table with numbers, words, gaps and names of rows."""
    rng = np.random.default_rng(seed)
    size, city = rng.uniform(50, 150, rows), rng.choice(["Ulm", "Bonn", "Kiel"], rows)
    price = 2.5 * size + 40 * (city == "Ulm") + rng.normal(0, 10, rows)
    frame = pd.DataFrame({"id": [f"{i:04d}" for i in range(rows)], "size": size, "city": city, "price": price})
    return frame.assign(age=np.where(rng.random(rows) < 0.1, np.nan, rng.integers(0, 99, rows)), sold=price > 250)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with tables and with a model of numbers and one of classes."""
    folder = tmp_path_factory.mktemp("cli")
    for name, rows in (("train", 60), ("test", 40)):
        houses(rows, rows).to_csv(folder / f"{name}.csv", index=False)
    for target, model in (("price", "numbers"), ("sold", "classes")):
        done = run("fit", folder / "train.csv", "--target", target, "--out", folder / model, *QUICK, "--quiet")
        assert done.exit_code == 0, done.output
    return folder


def refuse(result, *words):
    """Exit code 2, and one line that has these words."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == "" or "error" not in result.stdout
    (told,) = [text for text in result.stderr.splitlines() if text.startswith("error: ")]
    for word in words:
        assert word in told
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    assert run(command, "--help").exit_code == 0
    assert command in run("--help").stdout


def test_the_entry_point_is_where_the_package_says():
    assert callable(main)


def test_defaults_are_those_of_the_estimators():
    command, estimator = (inspect.signature(f).parameters for f in (training_commands.fit, DEGPRegressor))
    for name in ("objective", "members", "max_seconds", "max_epochs", "device", "noise"):
        assert command[name].default == estimator[name].default
    assert command["hidden"].default == ",".join(map(str, estimator["hidden_layers"].default))


def test_fit_says_what_it_did_and_what_to_do_next(place, tmp_path):
    done = run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "model", *QUICK)
    for words in (
        "regression, because",
        "'id': left out",
        "'city': 3 categories",
        "α = ",
        "validation NLL",
        "Saved: ",
    ):
        assert words in done.stdout
    assert f"degp predict {tmp_path / 'model'}" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_task_can_be_asked_for(place, tmp_path):
    done = run("fit", place / "train.csv", "--target", "age", "--task", "regression", "--out", tmp_path / "m", *QUICK)
    assert "that was asked for" in done.stdout
    assert load_model(tmp_path / "m").target.task == "regression"


@pytest.mark.parametrize(
    "arguments, keys",
    [
        (
            ["fit", "train.csv", "--target", "price", "--out", "new", *QUICK],
            {"model", "alpha", "validation_nll", "notes"},
        ),
        (["predict", "numbers", "test.csv", "--out", "new.csv"], {"rows", "predictions"}),
        (["evaluate", "numbers", "test.csv", "--resamples", "5"], {"task", "rows", "metrics", "verdict"}),
        (["update", "numbers", "test.csv", "--out", "new"], {"rows", "shift", "std", "rmse"}),
        (["data", "list"], {"data_sets"}),
    ],
)
def test_json_is_all_there_is_on_stdout(arguments, keys, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    arguments = [str(tmp_path / word) if word.startswith("new") else word for word in arguments]
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout).keys() >= keys


def test_quiet_is_quiet(place, tmp_path):
    done = run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "m", *QUICK, "--quiet")
    assert done.output == ""


def test_predictions_of_numbers_are_those_of_the_estimator(place, tmp_path):
    run("predict", place / "numbers", place / "test.csv", "--out", tmp_path / "p.csv", "--level", "0.5", "--id", "id")
    told, model = pd.read_csv(tmp_path / "p.csv", dtype={"id": str}), load_model(place / "numbers")
    inputs = model.preprocessing.transform(read_table(place / "test.csv"))
    mean, std = model.estimator.predict(inputs, return_std=True)
    np.testing.assert_allclose(told[["mean", "total_std"]], np.stack([mean, std], 1), rtol=1e-7)
    np.testing.assert_allclose(told[["lower", "upper"]], model.estimator.predict_interval(inputs, 0.5), rtol=1e-7)
    assert (told["epistemic_std"] <= told["total_std"]).all()
    assert told["id"][:2].tolist() == ["0000", "0001"]


def test_predictions_of_classes_are_those_of_the_estimator(place, tmp_path):
    run("predict", place / "classes", place / "test.csv", "--out", tmp_path / "p.csv")
    told, model = pd.read_csv(tmp_path / "p.csv"), load_model(place / "classes")
    inputs = model.preprocessing.transform(read_table(place / "test.csv"))
    probabilities = told[["probability_False", "probability_True"]].to_numpy()
    np.testing.assert_allclose(probabilities, model.estimator.predict_proba(inputs), rtol=1e-7)
    assert (told["prediction"] == (probabilities[:, 1] > 0.5)).all()
    assert (told["epistemic"] <= told["total"]).all()


@pytest.mark.parametrize("model", ["numbers", "classes"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_long_table_is_predicted_in_pieces(model, suffix, place, tmp_path):
    loaded = load_model(place / model)
    rows = predict_file(loaded, place / "test.csv", tmp_path / f"p{suffix}", chunk_rows=7, name_column="id")
    told = pd.read_csv(tmp_path / "p.csv") if suffix == ".csv" else pd.read_parquet(tmp_path / "p.parquet")
    whole = predict_rows(loaded, read_table(place / "test.csv"))
    assert rows == len(told) == len(whole)
    for name in whole:
        if name != "prediction":
            np.testing.assert_allclose(told[name], whole[name], rtol=1e-4, atol=0.1 if model == "classes" else 0)


def test_conformal_intervals_can_be_had(place, tmp_path):
    plain, conformal = tmp_path / "p.csv", tmp_path / "c.csv"
    run("predict", place / "numbers", place / "test.csv", "--out", plain, "--level", "0.5")
    run("predict", place / "numbers", place / "test.csv", "--out", conformal, "--level", "0.5", "--conformal")
    assert (pd.read_csv(plain)["mean"] == pd.read_csv(conformal)["mean"]).all()
    assert (pd.read_csv(plain)["lower"] != pd.read_csv(conformal)["lower"]).all()
    done = run("predict", place / "numbers", place / "test.csv", "--out", conformal, "--level", "0.99", "--conformal")
    assert done.exit_code == 0
    assert "note: 9 validation rows are too few" in done.stderr


@pytest.mark.parametrize("model, metric", [("numbers", "RMSE"), ("classes", "Accuracy")])
def test_evaluate_shows_metrics_and_a_verdict(model, metric, place):
    done = run("evaluate", place / model, place / "test.csv", "--resamples", "5")
    assert done.exit_code == 0, done.output
    assert metric in done.stdout
    assert "of 40 test rows" in done.stdout


@pytest.mark.parametrize("model", ["numbers", "classes"])
def test_report_shows_a_plain_ensemble_where_it_can_be_trained(model, place, tmp_path):
    pages = [tmp_path / "alone.html", tmp_path / "beside.html"]
    for page, rest in zip(pages, ([], ["--train", place / "train.csv"]), strict=True):
        done = run("report", place / model, place / "test.csv", "--out", page, "--resamples", "5", *rest)
        assert done.exit_code == 0, done.output
    alone, beside = (page.read_text() for page in pages)
    assert "--train TABLE" in alone
    assert 'class="theirs"' not in alone
    assert 'class="theirs"' in beside


def test_update_teaches_and_leaves_the_old_model(place, tmp_path):
    before = (place / "numbers" / "model.json").read_text()
    done = run("update", place / "numbers", place / "test.csv", "--out", tmp_path / "new")
    assert "Conditioned on 40 new labels" in done.stdout
    assert (place / "numbers" / "model.json").read_text() == before
    old, new = (load_model(folder) for folder in (place / "numbers", tmp_path / "new"))
    frame = read_table(place / "test.csv")
    assert (predict_rows(new, frame)["epistemic_std"] < predict_rows(old, frame)["epistemic_std"]).all()
    run("update", tmp_path / "new", place / "test.csv")
    assert load_model(tmp_path / "new").metadata["metrics"]["updated_rows"] == 80


def test_under_torchrun_the_first_rank_alone_updates(place, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        done = run("update", place / "numbers", place / "test.csv", "--out", tmp_path / "updated")
        assert done.exit_code == 0, done.output
        assert (tmp_path / "updated").exists() == bool(done.output) == (rank == "0")


def test_errors_of_other_ranks_say_whose_they_are(monkeypatch):
    def wrong(device):
        raise ValueError("this is wrong")

    monkeypatch.setattr(training_commands, "_check_device", wrong)
    monkeypatch.setenv("RANK", "1")
    done = run("fit", "table.csv", "--target", "y", "--out", "model")
    assert (done.exit_code, done.stderr) == (2, "error on rank 1: this is wrong\n")


def test_classes_cannot_be_updated(place):
    refuse(run("update", place / "classes", place / "test.csv"), "only models of numbers")


class Interrupted:
    """Ctrl-C in the third epoch."""

    def __init__(self, judge):
        self.judge, self.calls = judge, 0

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return self.judge(*arguments)


def test_ctrl_c_keeps_what_was_learned(place, tmp_path, monkeypatch):
    command = ["fit", place / "train.csv", "--target", "price", "--out", tmp_path / "model", *QUICK]
    interrupted = Interrupted(Contest.judge)
    with monkeypatch.context() as patch:
        patch.setattr(Contest, "judge", lambda *arguments: interrupted(*arguments))
        stopped = run(*command)
    assert stopped.exit_code == 130
    assert "run the same command again" in stopped.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model.partial"]
    refuse(run(*command, "--seed", "1"), "random_state is 0", "model.partial")
    again = run(*command)
    assert "Going on from epoch 2" in again.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    frame = read_table(place / "test.csv")
    whole, resumed = (predict_rows(load_model(f), frame) for f in (place / "numbers", tmp_path / "model"))
    pd.testing.assert_frame_equal(whole, resumed, check_exact=True)


def test_ctrl_c_at_the_start_leaves_nothing(place, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(DEGPRegressor, "fit", interrupt)
    stopped = run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "model")
    assert stopped.exit_code == 130
    assert not list(tmp_path.iterdir())


def test_a_fault_of_ours_is_no_mistake_of_theirs(place, monkeypatch):
    monkeypatch.setattr(DEGPRegressor, "predict", lambda *arguments: {}["missing"])
    assert run("evaluate", place / "numbers", place / "test.csv").exit_code == 1


GOOD = houses(12, 0)
BAD_TABLES = {
    "no such column": (GOOD.drop(columns="price"), "must have the columns 'price'"),
    "no target at all": (GOOD.assign(price=np.nan), "all 12 of its cells are missing"),
    "one target": (GOOD.assign(price=[1.5, *[np.nan] * 11]), "at least two rows"),
    "one value": (GOOD.assign(price=3.25), "must vary"),
    "one row": (GOOD[:1], "at least two rows"),
    "no rows": (GOOD[:0], "at least one row"),
    "infinite target": (GOOD.assign(price=[np.inf, *range(11)]), "finite numbers"),
    "nothing to learn from": (GOOD[["price"]], "a column to learn from"),
    "only names": (GOOD[["id", "price"]], "a column to learn from"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_fit_refuses_what_cannot_be_learned_from(name, tmp_path):
    frame, words = BAD_TABLES[name]
    frame.to_csv(tmp_path / "bad.csv", index=False)
    refuse(run("fit", tmp_path / "bad.csv", "--target", "price", "--out", tmp_path / "model", *QUICK), words)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"price\n", b"1,2\n3,4\n", b"\xff\xfe\x00", b"price,price\n1,2\n3,4\n"]
)
@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "update", "report"])
def test_files_that_are_no_tables_are_refused(command, content, place, tmp_path):
    bad, out = tmp_path / "bad.csv", tmp_path / "out.csv"
    bad.write_bytes(content)
    words = ["fit", bad, "--target", "price"] if command == "fit" else [command, place / "numbers", bad]
    refuse(run(*words, *([] if command == "evaluate" else ["--out", out])))
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


@settings(max_examples=25)
@given(content=st.binary(max_size=60) | st.text(alphabet='price,;\t"\n 0123.eE-xé', max_size=80).map(str.encode))
def test_no_junk_breaks_a_command(content, place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("junk")
    bad = folder / "bad.csv"
    bad.write_bytes(content)
    refuse(run("predict", place / "numbers", bad, "--out", folder / "p.csv"))
    refuse(run("evaluate", place / "numbers", bad))
    done = run("fit", bad, "--target", "price", "--out", folder / "m", *QUICK, "--objective", "de")
    if done.exit_code:
        refuse(done)
    assert {path.name for path in folder.iterdir()} <= {"bad.csv", "m"}


def test_new_rows_must_have_the_columns_of_training(place, tmp_path):
    houses(9, 3).drop(columns="size").to_csv(tmp_path / "new.csv", index=False)
    refuse(run("predict", place / "numbers", tmp_path / "new.csv", "--out", tmp_path / "p.csv"), "'size'")
    houses(9, 3).assign(size="large").to_csv(tmp_path / "new.csv", index=False)
    refuse(run("predict", place / "numbers", tmp_path / "new.csv", "--out", tmp_path / "p.csv"), "'size'", "'large'")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_a_fault_far_down_the_table_leaves_no_file(place, tmp_path):
    frame = houses(30, 3).astype({"size": object})
    frame.loc[29, "size"] = "large"
    frame.to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(ValueError, match="row 29"):
        predict_file(load_model(place / "numbers"), tmp_path / "new.csv", tmp_path / "p.csv", chunk_rows=10)
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_what_training_has_not_seen_is_noted_once(place, tmp_path):
    houses(9, 3).assign(city="Rome", pool=1, size=lambda f: f["size"].where(f.index > 2)).to_csv(tmp_path / "new.csv")
    done = run("predict", place / "numbers", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert done.exit_code == 0
    for words in ("'city' has 9 cells in categories", "'size' has 3 missing cells", "'pool'"):
        assert sum(words in told for told in done.stderr.splitlines() if told.startswith("note: ")) == 1


def test_labels_that_training_has_not_seen_are_refused(place, tmp_path):
    houses(9, 3).assign(sold="maybe").to_csv(tmp_path / "new.csv", index=False)
    refuse(run("evaluate", place / "classes", tmp_path / "new.csv"), "one of the 2 labels", "'maybe'")


@pytest.mark.parametrize("model", ["numbers", "classes"])
def test_one_row_is_enough_to_predict_and_to_evaluate(model, place, tmp_path):
    houses(1, 3).to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", place / model, tmp_path / "new.csv", "--out", tmp_path / "p.csv").exit_code == 0
    done = run("evaluate", place / model, tmp_path / "new.csv")
    assert done.exit_code == 0, done.output
    assert "Cannot tell" in done.stdout


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["predict", "nowhere", "test.csv", "--out", "new.csv"], "has no model.json"),
        (["predict", "numbers", "nowhere.csv", "--out", "new.csv"], "no such file"),
        (["predict", "numbers", "test.csv", "--out", "new.xlsx"], ".csv or .parquet"),
        (["predict", "numbers", "test.csv", "--out", "test.csv"], "must not take the place"),
        (["predict", "numbers", "test.csv", "--out", "new.csv", "--level", "90"], "0.9 is a 90 % interval"),
        (["predict", "numbers", "test.csv", "--out", "new.csv", "--id", "name"], "'name'"),
        (["predict", "classes", "test.csv", "--out", "new.csv", "--conformal"], "predicts classes"),
        (["evaluate", "numbers", "test.csv", "--level", "0"], "level"),
        (["fit", "train.csv", "--target", "price", "--out", "."], "other files"),
        (["fit", "train.csv", "--target", "price", "--out", "test.csv"], "is a file"),
        (["fit", "train.csv", "--target", "prize", "--out", "new"], "did you mean 'price'"),
        (["data", "path", "bostn"], "did you mean 'boston'"),
        (["data", "fetch", "bostn"], "did you mean 'boston'"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments, words, place, monkeypatch):
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    refuse(run(*arguments), words)
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fit"],
        ["fit", "train.csv", "--target", "price", "--out", "new", "--hidden", "8,-1"],
        ["fit", "train.csv", "--target", "price", "--out", "new", "--members", "1"],
        ["fit", "train.csv", "--target", "price", "--out", "new", "--task", "clustering"],
        ["predict", "numbers"],
        ["frobnicate"],
    ],
)
def test_wrong_usage_has_exit_code_two(arguments, place, monkeypatch):
    monkeypatch.chdir(place)
    assert run(*arguments).exit_code == 2


def test_a_fresh_process_can_use_a_model(place, tmp_path):
    command = [sys.executable, "-m", "degp", "predict", place / "numbers", place / "test.csv"]
    command += ["--out", tmp_path / "p.csv"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(read_table(tmp_path / "p.csv")) == 40


def test_any_method_has_a_page(place, tmp_path):
    run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "de", *QUICK, "--objective", "de")
    assert run("evaluate", tmp_path / "de", place / "test.csv", "--resamples", "5").exit_code == 0
    page = tmp_path / "r.html"
    assert run("report", tmp_path / "de", place / "test.csv", "--out", page, "--resamples", "5").exit_code == 0
    assert "DE, a plain deep ensemble" in page.read_text() and "DE-GP" not in page.read_text()


def test_data_sets_are_listed_and_found(tmp_path, monkeypatch):
    monkeypatch.setenv("DEGP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "boston" in run("data", "list").stdout
    refuse(run("data", "path", "boston"), "degp data fetch boston")
    record = data_set("boston")
    (tmp_path / record.folder).mkdir(parents=True)
    for file in record.files:
        (tmp_path / record.folder / file.name).touch()
    assert run("data", "path", "boston").stdout.startswith(str(tmp_path))


@pytest.mark.parametrize(
    "command",
    [
        ["demo", "--out", "test.csv/figure.png"],
        ["fit", "train.csv", "--target", "price", "--out", "test.csv/model"],
        ["predict", "numbers", "test.csv", "--out", "test.csv/predictions.csv"],
        ["report", "numbers", "test.csv", "--out", "test.csv/report.html"],
        ["export", "numbers", "--onnx", "test.csv/model.onnx"],
    ],
)
def test_a_folder_that_cannot_be_written_to_is_named_before_anything_is_done(place, command, monkeypatch):
    monkeypatch.chdir(place)
    told = f"test.csv must be a folder that can be written to, but it is a file; choose another with {command[-2]}"
    refuse(run(*command), told)


def test_a_model_that_is_not_there_is_told_as_such(place, tmp_path):
    told = "there is no such folder; look for a slip in its name"
    refuse(run("predict", tmp_path / "nowhere", place / "test.csv", "--out", tmp_path / "predictions.csv"), told)


def test_an_exported_graph_is_told_with_all_its_features_in_their_order(place, tmp_path):
    pytest.importorskip("onnxscript")
    features = list(load_model(place / "numbers").preprocessing.features)
    lines = [
        text.strip() for text in run("export", place / "numbers", "--onnx", tmp_path / "m.onnx").stdout.splitlines()
    ]
    start = lines.index(f"takes features (rows, {len(features)}), in this order:") + 1
    assert lines[start : start + len(features)] == [f"{place}  {name!r}" for place, name in enumerate(features)]
