"""One cell of the comparison: a method on a split of a table, with its scores and its CPU time."""

import random
import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int, Shaped
from numpy.random import RandomState

from degp import metrics
from degp.metrics.regression import normal_quantile
from experiments.data.tables import Table, table
from experiments.protocols.peers.contract import LEVEL, Interval, Normal, Prediction, Probabilities, Task, Transformed
from experiments.protocols.peers.encoding import numeric_columns
from experiments.protocols.peers.registry import METHODS

__all__ = ["IID", "KINDS", "SCORES", "SMALLEST_PROBABILITY", "Cell", "run_cell", "scores", "split_rows"]

IID, EXTRAPOLATION = "iid", "extrapolation"
KINDS = (IID, EXTRAPOLATION)
TRAIN_FRACTION = 0.8
SMALLEST_PROBABILITY = 1e-6
SCORES = ("rmse", "nll", "crps", "coverage90", "width90", "accuracy", "ece", "auroc_errors")
Rows = Int[np.ndarray, "_"]


@dataclass(frozen=True)
class Cell:
    """What identifies a record."""

    dataset: str
    kind: str
    split: int
    method: str


def run_cell(cell: Cell, steps: int | None = None) -> dict[str, Any]:
    """The scores of a method on the test rows, in original units, and CPU seconds of this process."""
    warnings.simplefilter("ignore")
    data = table(cell.dataset)
    train, test = split_rows(data, cell.kind, cell.split)
    task = Task(data.categorical, data.num_classes, cell.split, steps)
    fit = METHODS[cell.method].fit_for(data.num_classes)
    assert fit is not None, f"{cell.method} is not for {cell.dataset}"
    for module in METHODS[cell.method].modules:
        import_module(module)
    _seed_everything(cell.split)
    start = time.process_time()
    predictor = fit(data.features.iloc[train].reset_index(drop=True), data.target[train], task)
    fitted = time.process_time()
    prediction = predictor(data.features.iloc[test].reset_index(drop=True))
    seconds = {"fit_seconds": fitted - start, "predict_seconds": time.process_time() - fitted}
    return scores(prediction, data.target[test]) | seconds


def split_rows(data: Table, kind: str, split: int) -> tuple[Rows, Rows]:
    """Rows to train and to test on: at random by the split's number, or far from the mean of the features."""
    cut = round(TRAIN_FRACTION * len(data))
    if kind == IID:
        order = RandomState(split).permutation(len(data))
        return order[:cut], order[cut:]
    order = np.argsort(_distances(data.features, data.categorical), kind="stable")
    return np.sort(order[:cut]), np.sort(order[cut:])


def scores(prediction: Prediction, truth: Shaped[np.ndarray, "N"]) -> dict[str, float | None]:
    """All of SCORES, None where a score does not apply."""
    if isinstance(prediction, Probabilities):
        found = _class_scores(prediction, truth)
    elif isinstance(prediction, Interval):
        found = _interval_scores(prediction, truth)
    elif isinstance(prediction, Transformed):
        found = _transformed_scores(prediction, truth)
    else:
        found = _normal_scores(prediction, truth)
    return {name: found.get(name) for name in SCORES}


def _normal_scores(prediction: Normal, truth: Shaped[np.ndarray, "N"]) -> dict[str, float]:
    mean, std, y = (
        torch.tensor(values, dtype=torch.float64)[:, None] for values in (prediction.mean, prediction.std, truth)
    )
    return {
        "rmse": metrics.rmse(mean, y),
        "nll": metrics.gaussian_nll(mean, std.square(), y),
        "crps": metrics.crps(mean, std.square(), y),
        "coverage90": metrics.coverage(mean, std.square(), y, level=LEVEL),
        "width90": metrics.interval_width(std.square(), level=LEVEL),
    }


def _transformed_scores(prediction: Transformed, truth: Shaped[np.ndarray, "N"]) -> dict[str, float]:
    """In the units of the target; NLL and CRPS are those of the transformed Gaussian."""
    t = prediction.transform
    mean, location, scale, y = (
        torch.tensor(values, dtype=torch.float64)[:, None]
        for values in (prediction.mean, prediction.location, prediction.scale, truth)
    )
    values, half = t.forward(y), normal_quantile(LEVEL) * scale
    return {
        "rmse": metrics.rmse(mean, y),
        "nll": metrics.gaussian_nll(location, scale.square(), values) + t.log_slope(values).mean().item(),
        "crps": t.crps(location, scale.square(), y),
        "coverage90": metrics.coverage(location, scale.square(), values, level=LEVEL),
        "width90": (t.inverse(location + half) - t.inverse(location - half)).mean().item(),
    }


def _interval_scores(prediction: Interval, truth: Shaped[np.ndarray, "N"]) -> dict[str, float]:
    """NLL and CRPS are those of the Gaussian whose central interval of probability LEVEL is the given one."""
    low, high = prediction.low, prediction.high
    std = np.maximum((high - low) / (2 * normal_quantile(LEVEL)), prediction.smallest_std)
    return _normal_scores(Normal((low + high) / 2, std), truth) | {
        "rmse": float(np.sqrt(np.mean((prediction.mean - truth) ** 2))),
        "coverage90": float(np.mean((low <= truth) & (truth <= high))),
        "width90": float(np.mean(high - low)),
    }


def _class_scores(prediction: Probabilities, truth: Shaped[np.ndarray, "N"]) -> dict[str, float | None]:
    """Probabilities are at least SMALLEST_PROBABILITY, so that one wrong row does not make the NLL infinite."""
    values = np.maximum(prediction.values.astype(float), SMALLEST_PROBABILITY)
    p, labels = torch.tensor(values / values.sum(1, keepdims=True)), torch.tensor(truth)
    errors = p.argmax(1) != labels
    both = bool(errors.any()) and not bool(errors.all())
    return {
        "nll": metrics.nll(p, labels),
        "accuracy": metrics.accuracy(p, labels),
        "ece": metrics.ece(p, labels),
        "auroc_errors": metrics.auroc(1 - p.max(1).values, errors) if both else None,
    }


def _distances(features: pd.DataFrame, categorical: tuple[str, ...]) -> Shaped[np.ndarray, "N"]:
    """From the mean of the standardised numeric features; a missing one counts as the mean."""
    numbers = features[numeric_columns(features, categorical)]
    spread = numbers.std(ddof=0)
    standard = ((numbers - numbers.mean()) / spread.where(spread > 0, 1.0)).fillna(0.0)
    return np.sqrt((standard.to_numpy() ** 2).sum(1))


def _seed_everything(seed: int) -> None:
    """For packages that draw from the global generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
