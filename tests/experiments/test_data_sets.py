"""`python -m experiments data` lists, downloads and locates data sets."""

import json

import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.data import data_set


@pytest.fixture(autouse=True)
def local(tmp_path, monkeypatch):
    """An empty local copy and an empty cache."""
    monkeypatch.setenv("DEGP_DATA", str(tmp_path / "copy"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "copy"


def run(*arguments):
    return CliRunner().invoke(app, ["data", *arguments])


def assert_fails(done, words):
    """Exit code 2 and one line on stderr."""
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr and len(done.stderr.splitlines()) == 1


def put(local, name):
    """Empty files in place of a data set."""
    record = data_set(name)
    (local / record.folder).mkdir(parents=True)
    for file in record.files:
        (local / record.folder / file.name).touch()
    return local / record.folder


def test_data_sets_are_listed_with_their_folders(local):
    assert "boston" in run("list").stdout
    folder = put(local, "boston")
    rows = {row["name"]: row["path"] for row in json.loads(run("list", "--json").stdout)["data_sets"]}
    assert rows["boston"] == str(folder) and rows["concrete"] is None


def test_the_folder_of_a_local_data_set_is_printed(local):
    folder = put(local, "boston")
    assert run("path", "boston").stdout.strip() == str(folder)


def test_the_path_of_a_missing_data_set_is_an_error_that_names_the_download():
    assert_fails(run("path", "boston"), "python -m experiments data fetch boston")


def test_fetch_verifies_the_checksum(local):
    put(local, "boston")
    assert_fails(run("fetch", "boston"), "must have the sha256")


@pytest.mark.parametrize("command", ["path", "fetch"])
def test_an_unknown_name_suggests_the_nearest(command):
    assert_fails(run(command, "bostn"), "did you mean 'boston'")


def test_the_command_without_arguments_prints_its_help():
    done = run()
    assert done.exit_code == 2 and all(word in done.output for word in ("list", "fetch", "path"))
