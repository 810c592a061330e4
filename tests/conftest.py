"""Shared by every test: shapes checked at run time, one thread per worker, no display, a seeded generator."""

import os

import hypothesis
import pytest
import torch
from jaxtyping import install_import_hook

TYPECHECK = os.environ.get("DEGP_NO_TYPECHECK") != "1"

if TYPECHECK:  # before anything imports degp
    install_import_hook("degp", "beartype.beartype")

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers already use all cores
    torch.set_num_threads(1)

os.environ["MPLBACKEND"] = "Agg"

hypothesis.settings.register_profile(
    "degp",
    deadline=None,
    max_examples=25,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("degp")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of `torch.compile` while the type checks are on: they break its graphs."""
    if TYPECHECK:
        for item in items:
            if item.get_closest_marker("compiled"):
                item.add_marker(pytest.mark.skip(reason="set DEGP_NO_TYPECHECK=1 to run with torch.compile"))


@pytest.fixture
def generator() -> torch.Generator:
    """A generator seeded with 0, new for each test."""
    return torch.Generator().manual_seed(0)
