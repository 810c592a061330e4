"""Shared by the tests of the command line."""

import pytest

from tests.cli.commands import QUICK, houses, run


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with tables and with a model of numbers and one of classes; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("cli")
    for name, rows in (("train", 60), ("test", 40)):
        houses(rows, rows).to_csv(folder / f"{name}.csv", index=False)
    for target, model in (("price", "numbers"), ("sold", "classes")):
        done = run("fit", folder / "train.csv", "--target", target, "--out", folder / model, *QUICK, "--quiet")
        assert done.exit_code == 0, done.output
    return folder
