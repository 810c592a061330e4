"""Fitting an estimator on 500 rows of 13 features: DE-GP by preset, DE, and scikit-learn's Gaussian process."""

import time
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from degp.methods import Kind
from degp.sklearn import DEGPRegressor
from degp.tabular.presets import Preset

ROWS, FEATURES = 500, 13


def run() -> list[dict[str, Any]]:
    """Seconds to fit with defaults, and with the same steps for DE; R² and coverage on 500 new rows."""
    train, test = _waves(0), _waves(1)
    default = DEGPRegressor(random_state=0)
    records = [_fitted("DE-GP, defaults", default, train, test)]
    others = [preset.value for preset in Preset if preset is not Preset.DEFAULT]
    records += [_fitted(f"DE-GP, {name}", DEGPRegressor(preset=name, random_state=0), train, test) for name in others]
    same = {"steps": default.history_[-1]["step"], "random_state": 0}
    records += [
        _fitted("DE, same members and steps", DEGPRegressor(method=Kind.DE.value, **same), train, test),
        _fitted("scikit-learn GP, ARD", _gaussian_process(0), train, test),
        _fitted("scikit-learn GP, ARD and 2 restarts", _gaussian_process(2), train, test),
    ]
    baseline = next(record["seconds"] for record in records if record["model"].startswith("DE,"))
    return [record | {"ratio to DE": record["seconds"] / baseline} for record in records]


def _fitted(name: str, model: Any, train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    model.fit(*train)
    seconds = time.perf_counter() - start
    mean, std = model.predict(test[0], return_std=True)
    covered = np.mean(np.abs(test[1] - mean) <= 1.6449 * std)
    return {"model": name, "seconds": seconds, "R²": model.score(*test), "90 % coverage": float(covered)}


def _gaussian_process(restarts: int) -> GaussianProcessRegressor:
    kernel = ConstantKernel() * RBF(np.ones(FEATURES)) + WhiteKernel()
    return GaussianProcessRegressor(kernel, n_restarts_optimizer=restarts, normalize_y=True, random_state=0)


def _waves(seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((ROWS, FEATURES))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] + 0.3 * random.standard_normal(ROWS)
