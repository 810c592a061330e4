"""Curves of the report as plain lists.

A curve's `low` and `high` are the 99 % band of its values if the predictions were calibrated.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp import metrics
from degp.metrics.regression import normal_quantile
from degp.report.predictions import ClassPredictions, GaussianPredictions, finite, plain
from degp.report.scores import detect
from degp.report.statistics import MARGIN

__all__ = [
    "class_groups",
    "confidence_histogram",
    "confusion",
    "coverage_curve",
    "per_class",
    "pit_histogram",
    "predicted_and_actual",
    "quantile_curve",
    "regression_groups",
    "reliability",
    "risk_curve",
    "sharpness",
]

GROUP_ROWS, GROUPS = 40, 10  # minimum rows per uncertainty group, maximum number of groups


def predicted_and_actual(data: GaussianPredictions, level: float, points: int = 200) -> dict[str, Any]:
    """Predictions with their intervals, and the true values, of rows spread evenly over the order of predictions."""
    N = len(data.mean)
    rows = data.mean.argsort(stable=True)[torch.linspace(0, N - 1, min(points, N)).round().long()]
    q, chosen = normal_quantile(level), data[rows]
    low, high, actual = chosen.targets_at(-q), chosen.targets_at(q), chosen.targets
    return {
        "level": level,
        "predicted": plain(chosen.mean),
        "low": plain(low),
        "high": plain(high),
        "actual": plain(actual),
        "inside": ((low <= actual) & (actual <= high)).tolist(),
    }


def coverage_curve(data: GaussianPredictions) -> dict[str, Any]:
    """Coverage of central intervals at each level, with its band."""
    curve = metrics.calibration_curve(*data.columns, num_levels=51)
    return {"expected": plain(curve.expected), "observed": plain(curve.observed)} | _band(
        curve.expected, len(data.mean)
    )


def quantile_curve(data: GaussianPredictions) -> dict[str, Any]:
    """Fraction of targets below each predicted quantile, with its band."""
    expected = torch.linspace(0, 1, 51, dtype=torch.float64)
    below = torch.searchsorted(metrics.pit(*data.columns).flatten().sort().values, expected, right=True)
    return {"expected": plain(expected), "observed": plain(below / len(data.mean))} | _band(expected, len(data.mean))


def pit_histogram(data: GaussianPredictions, bins: int = 10) -> dict[str, Any]:
    """Histogram of the probability integral transform: uniform if the predictions are calibrated."""
    counts = torch.histc(metrics.pit(*data.columns), bins, min=0, max=1)
    N = len(data.mean)
    band = _band(torch.tensor([1 / bins], dtype=torch.float64), N)
    return {
        "edges": plain(torch.linspace(0, 1, bins + 1, dtype=torch.float64)),
        "counts": plain(counts),
        "expected": N / bins,
        "low": N * band["low"][0],
        "high": N * band["high"][0],
    }


def sharpness(data: GaussianPredictions, bins: int = 24) -> dict[str, Any]:
    """Histograms of the total and the epistemic standard deviation, and the epistemic fraction of the variance."""
    total, epistemic = data.std, data.epistemic.sqrt()
    top = 1.0001 * torch.cat([total, epistemic]).max().item()
    return {
        "edges": plain(torch.linspace(0, top, bins + 1, dtype=torch.float64)),
        "total": plain(torch.histc(total, bins, min=0, max=top)),
        "epistemic": plain(torch.histc(epistemic, bins, min=0, max=top)),
        "epistemic_share": (data.epistemic.sum() / data.variance.sum()).item(),
    }


def regression_groups(data: GaussianPredictions, level: float) -> dict[str, Any]:
    """Equally sized groups of rows from narrow to wide: predicted and observed RMS error, and coverage."""
    groups, (m, v, y) = _groups(data.std), data.columns
    sizes = torch.tensor([len(rows) for rows in groups], dtype=torch.float64)
    predicted = torch.stack([data.variance[rows].mean().sqrt() for rows in groups])
    margin = MARGIN / (2 * sizes).sqrt()  # relative standard error of a standard deviation from n normal values
    return {
        "count": [len(rows) for rows in groups],
        "predicted": plain(predicted),
        "observed": plain(torch.stack([data.errors[rows].square().mean().sqrt() for rows in groups])),
        "low": plain((predicted * (1 - margin)).clamp(min=0)),
        "high": plain(predicted * (1 + margin)),
        "coverage": [metrics.coverage(m[rows], v[rows], y[rows], level) for rows in groups],
    }


def class_groups(uncertainty: Float[Tensor, "N"], data: ClassPredictions) -> dict[str, Any]:
    """Equally sized groups of rows from certain to uncertain: predicted and observed error rate."""
    groups = _groups(uncertainty)
    predicted = torch.stack([1 - data.confidence[rows].mean() for rows in groups])
    return {
        "count": [len(rows) for rows in groups],
        "predicted": plain(predicted),
        "observed": plain(torch.stack([data.wrong[rows].double().mean() for rows in groups])),
    } | _band(predicted, torch.tensor([len(rows) for rows in groups]))


def risk_curve(
    uncertainty: Float[Tensor, "N"], errors: Bool[Tensor, "N"] | Float[Tensor, "N"], points: int = 50
) -> dict[str, Any]:
    """Mean error of the most certain rows, as a function of the fraction kept, from 2 % to all."""
    curve = metrics.risk_coverage_curve(uncertainty, errors)
    N = len(uncertainty)
    kept = torch.arange(1, points + 1).mul(N).div(points).ceil().long().sub(1).unique()
    return {"kept": plain(curve.coverage[kept]), "error": plain(curve.risk[kept])}


def reliability(data: ClassPredictions) -> dict[str, Any]:
    """Confidence and accuracy of the non-empty bins, with their band."""
    curve = metrics.reliability_curve(data.probabilities, data.labels)
    filled = curve.count > 0
    confidence, count = curve.confidence[filled], curve.count[filled]
    return {
        "confidence": plain(confidence),
        "accuracy": plain(curve.accuracy[filled]),
        "count": plain(count),
    } | _band(confidence, count)


def confidence_histogram(data: ClassPredictions, bins: int = 20) -> dict[str, Any]:
    """Histograms of the confidence of the correct and the wrong predictions."""
    return {
        "edges": plain(torch.linspace(0, 1, bins + 1, dtype=torch.float64)),
        "correct": plain(torch.histc(data.confidence[~data.wrong], bins, min=0, max=1)),
        "wrong": plain(torch.histc(data.confidence[data.wrong], bins, min=0, max=1)),
    }


def confusion(data: ClassPredictions) -> list[list[int]]:
    """Number of rows by true class (outer list) and predicted class (inner list)."""
    C = data.probabilities.shape[1]
    return torch.bincount(data.labels * C + data.predicted, minlength=C * C).view(C, C).tolist()


def per_class(data: ClassPredictions, names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows, recall, precision and ROC-AUC of each class, against the rest; None where undefined."""
    table = torch.tensor(confusion(data), dtype=torch.float64)
    recall, precision = (plain(table.diagonal() / table.sum(axis)) for axis in (1, 0))  # 0/0 = NaN
    return [
        {
            "name": name,
            "rows": int(table[c].sum()),
            "recall": recall[c],
            "precision": precision[c],
            "roc_auc": finite(detect(data.probabilities[:, c], data.labels == c)),
        }
        for c, name in enumerate(names)
    ]


def _groups(uncertainty: Float[Tensor, "N"]) -> list[Int[Tensor, "n"]]:
    """Row indices from certain to uncertain, in equally sized groups."""
    groups = min(GROUPS, max(1, len(uncertainty) // GROUP_ROWS))
    return list(uncertainty.argsort(stable=True).tensor_split(groups))


def _band(fractions: Float[Tensor, "K"], rows: int | Tensor) -> dict[str, Any]:
    """Normal approximation p ± 2.58 √(p(1 − p)/n) of observed fractions of n rows: for plots, not for tests."""
    margin = MARGIN * (fractions * (1 - fractions) / rows).sqrt()
    return {"low": plain((fractions - margin).clamp(0, 1)), "high": plain((fractions + margin).clamp(0, 1))}
