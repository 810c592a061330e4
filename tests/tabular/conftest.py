"""Shared by the tests of tables."""

import pytest

from tests.tabular.cases import fitted, houses

TARGETS = {"numbers": "price", "classes": "garden"}


@pytest.fixture(scope="session")
def models():
    """A model of numbers and one of classes; tests leave them as they are."""
    return {name: fitted(houses(), target) for name, target in TARGETS.items()}


@pytest.fixture
def table(tmp_path):
    """The path of a table in a folder of its own."""
    houses().to_csv(tmp_path / "houses.csv", index=False)
    return tmp_path / "houses.csv"


@pytest.fixture
def file(tmp_path):
    """Writes text or bytes to a file of that name and returns its path."""

    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
