"""Shared by the tests of tables."""

import pytest


@pytest.fixture
def file(tmp_path):
    """Writes text or bytes to a file of that name and returns its path."""

    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
