"""Fitting the default regressor to ever more rows: seconds, their growth, and peak memory."""

import resource
import time
from typing import Any

import numpy as np

from degp.sklearn import DEGPRegressor

SIZES = ((1_000, 20), (10_000, 20), (100_000, 20), (5_000, 100), (32_000, 100))


def run() -> list[dict[str, Any]]:
    """One fit per size; the peak memory is that of the process so far."""
    return [_record(*size) for size in SIZES]


def _record(rows: int, features: int) -> dict[str, Any]:
    X, y = _waves(rows, features)
    start = time.perf_counter()
    model = DEGPRegressor(random_state=0).fit(X, y)
    seconds = time.perf_counter() - start
    return {
        "rows": rows,
        "features": features,
        "seconds": seconds,
        "ms per row": 1e3 * seconds / rows,
        "steps": model.history_[-1]["step"],
        "peak memory, GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def _waves(rows: int, features: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, features))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] + 0.3 * random.standard_normal(rows)
