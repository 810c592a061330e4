"""One-dimensional regression: distances to the exact posterior."""

from collections.abc import Mapping
from typing import Any

from experiments.pages.stored import records, table, where

__all__ = ["distances", "error_bars"]

WIDTHS = ("none", "64", "128, 128", "256, 256, 256")
COLUMNS = {
    "DE": ("DE", 0),
    "rDE": ("rDE", 0),
    "DE-GP": ("DE-GP", 8),
    "DE-GP without measurement points": ("DE-GP", 0),
}


def distances() -> str:
    """By depth: mean absolute log ratio of standard deviations, and the RMS error of the mean."""
    rows = []
    for depth, widths in enumerate(WIDTHS):
        own = (_record(column, depth) for column in COLUMNS)
        rows.append([widths, *(f"{r['mean_abs_log_std_ratio']:.3f} ({r['rms_mean_error']:.3f})" for r in own)])
    return table(["hidden layers", *COLUMNS], rows)


def error_bars(column: str) -> str:
    """The largest mean absolute log ratio over depths with hidden layers."""
    return f"{max(_record(column, depth)['mean_abs_log_std_ratio'] for depth in (1, 2, 3)):.3f}"


def _record(column: str, depth: int) -> Mapping[str, Any]:
    method, points = COLUMNS[column]
    (record,) = where(records("toy"), method=method, extra_points=points, hidden_layers=depth)
    return record
