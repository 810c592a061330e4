"""The command line as a whole: help, JSON, and one clear line with the right exit code if a command fails."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degp.cli import fitting, main
from degp.tabular import evaluating, read_table
from tests.cli.commands import QUICK, assert_rejected, names, run

COMMANDS = ["demo", "fit", "predict", "evaluate", "report", "update", "export"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    assert run(command, "--help").exit_code == 0
    assert command in run("--help").stdout


def test_the_entry_point_exists():
    assert callable(main)


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
    ],
)
def test_json_is_the_only_output_on_stdout(arguments, keys, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    arguments = [str(tmp_path / word) if word.startswith("new") else word for word in arguments]
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout).keys() >= keys


@pytest.mark.parametrize(
    "arguments, phrase",
    [
        (["predict", "nowhere", "test.csv", "--out", "new.csv"], "has no model.json"),
        (["predict", "nowhere", "test.csv", "--out", "new.csv"], "there is no such folder; check its name"),
        (["predict", "numbers", "nowhere.csv", "--out", "new.csv"], "no such file"),
        (["report", "numbers", "test.csv", "--out", "new.html", "--deep-ensemble"], "pass --train TABLE as well"),
        (["predict", "numbers", "test.csv", "--out", "new.xlsx"], ".csv or .parquet"),
        (["predict", "numbers", "test.csv", "--out", "test.csv"], "must not overwrite the table"),
        (["predict", "numbers", "test.csv", "--out", "new.csv", "--level", "90"], "0.9 is a 90 % interval"),
        (["predict", "numbers", "test.csv", "--out", "new.csv", "--id", "name"], "'name'"),
        (["predict", "classes", "test.csv", "--out", "new.csv", "--conformal"], "predicts classes"),
        (["evaluate", "numbers", "test.csv", "--level", "0"], "level"),
        (["fit", "train.csv", "--target", "price", "--out", "."], "other files"),
        (["fit", "train.csv", "--target", "price", "--out", "test.csv"], "is a file"),
        (["fit", "train.csv", "--target", "prize", "--out", "new"], "did you mean 'price'"),
        (
            ["fit", "train.csv", "--target", "price", "--target", "sold", "--out", "new"],
            "several targets must all be numbers, but 'sold' has classes; fit a model of its own for it",
        ),
        (
            ["fit", "train.csv", "--target", "price", "--out", "new", "--max-seconds", "0"],
            "--max-seconds must be positive, but it is 0; leave it out for no limit",
        ),
        (["fit", "train.csv", "--target", "price", "--out", "new", "--max-seconds", "-3"], "but it is -3"),
    ],
)
def test_mistakes_are_reported_in_one_line(arguments, phrase, place, monkeypatch):
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    assert_rejected(run(*arguments), phrase)
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
def test_a_folder_that_cannot_be_written_to_is_reported_before_any_work(place, command, monkeypatch):
    monkeypatch.chdir(place)
    message = f"test.csv must be a folder that can be written to, but it is a file; choose another with {command[-2]}"
    assert_rejected(run(*command), message)


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"price\n", b"1,2\n3,4\n", b"\xff\xfe\x00", b"price,price\n1,2\n3,4\n"]
)
@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "update", "report"])
def test_files_that_are_not_tables_are_rejected(command, content, place, tmp_path):
    bad, out = tmp_path / "bad.csv", tmp_path / "out.csv"
    bad.write_bytes(content)
    words = ["fit", bad, "--target", "price"] if command == "fit" else [command, place / "numbers", bad]
    assert_rejected(run(*words, *([] if command == "evaluate" else ["--out", out])))
    assert names(tmp_path) == ["bad.csv"]


@settings(max_examples=25)
@given(content=st.binary(max_size=60) | st.text(alphabet='price,;\t"\n 0123.eE-xé', max_size=80).map(str.encode))
def test_no_content_of_a_file_crashes_a_command(content, place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("junk")
    bad = folder / "bad.csv"
    bad.write_bytes(content)
    assert_rejected(run("predict", place / "numbers", bad, "--out", folder / "p.csv"))
    assert_rejected(run("evaluate", place / "numbers", bad))
    done = run("fit", bad, "--target", "price", "--out", folder / "m", *QUICK, "--method", "de")
    if done.exit_code:
        assert_rejected(done)
    assert set(names(folder)) <= {"bad.csv", "m"}


def test_a_bug_has_exit_code_one(place, monkeypatch):
    monkeypatch.setattr(evaluating, "evaluate_rows", lambda *arguments, **options: {}["missing"])
    assert run("evaluate", place / "numbers", place / "test.csv").exit_code == 1


def test_errors_of_other_ranks_name_the_rank(monkeypatch):
    def wrong(device):
        raise ValueError("this is wrong")

    monkeypatch.setattr(fitting, "_check_device", wrong)
    monkeypatch.setenv("RANK", "1")
    done = run("fit", "table.csv", "--target", "y", "--out", "model")
    assert (done.exit_code, done.stderr) == (2, "error on rank 1: this is wrong\n")


@pytest.mark.slow
def test_a_new_process_can_use_a_model(place, tmp_path):
    command = [sys.executable, "-m", "degp", "predict", place / "numbers", place / "test.csv"]
    command += ["--out", tmp_path / "p.csv"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(read_table(tmp_path / "p.csv")) == 40
