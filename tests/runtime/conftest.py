"""Tests that start several processes run by `make test-slow`."""

import pytest

WORLDS = {"two", "four", "records"}  # fixtures that call torchrun


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that use a world of several ranks."""
    for item in items:
        if WORLDS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.distributed)
