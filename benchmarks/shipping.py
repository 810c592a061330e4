"""One prediction with its uncertainty: the estimator in torch and its exported graph in onnxruntime."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import in_turns
from degp.export import export_onnx
from degp.sklearn import DEGPRegressor

FEATURES = 13


def run() -> list[dict[str, Any]]:
    """Milliseconds for mean and uncertainty of 1, 100 and 10,000 rows; ten networks 2 × 100."""
    import onnxruntime

    random = np.random.default_rng(0)
    X = random.standard_normal((10_000, FEATURES))
    model = DEGPRegressor(members=10, hidden_layers=(100, 100), steps=3, random_state=0).fit(
        X[:300], np.sin(X[:300, 0])
    )
    with tempfile.TemporaryDirectory() as folder:
        session = onnxruntime.InferenceSession(str(export_onnx(model, Path(folder) / "model.onnx")))
    records = []
    for rows in (1, 100, 10_000):
        few = X[:rows]
        work: dict[str, Callable[[], object]] = {
            "torch": partial(model.predict, few, return_std=True),
            "onnxruntime": partial(session.run, None, {"features": few.astype(np.float32)}),
        }
        times = in_turns(work)
        records.append(
            {"rows": rows, **{f"{n}, ms": t for n, t in times.items()}, "ratio": times["torch"] / times["onnxruntime"]}
        )
    return records
