"""Curves of the report as plain lists, each with what chance alone explains.

A curve's `low` and `high` bound where chance would keep it in 99 of 100 cases if the predictions were right.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp import metrics
from degp.report.chance import normal_margin
from degp.report.outcomes import Classes, Gaussians, plain

GROUP_ROWS, GROUPS = 40, 10  # at least so many rows in a group by uncertainty, at most so many groups


def coverage_curve(data: Gaussians) -> dict[str, Any]:
    """What central intervals held, for each level, with the band that chance explains."""
    curve = metrics.calibration_curve(*data.columns, num_levels=51)
    return {"expected": plain(curve.expected), "observed": plain(curve.observed)} | _band(
        curve.expected, len(data.mean)
    )


def quantile_curve(data: Gaussians) -> dict[str, Any]:
    """The share of targets below each predicted quantile, with the band that chance explains."""
    expected = torch.linspace(0, 1, 51, dtype=torch.float64)
    below = torch.searchsorted(metrics.pit(*data.columns).flatten().sort().values, expected, right=True)
    return {"expected": plain(expected), "observed": plain(below / len(data.mean))} | _band(expected, len(data.mean))


def pit_histogram(data: Gaussians, bins: int = 10) -> dict[str, Any]:
    """Where in its predicted distribution each target fell: equally often everywhere if the predictions are right."""
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


def sharpness(data: Gaussians, bins: int = 24) -> dict[str, Any]:
    """Histograms of the total and the epistemic standard deviation, and the epistemic share of all variance."""
    total, epistemic = data.std, data.epistemic.sqrt()
    top = 1.0001 * torch.cat([total, epistemic]).max().item()
    return {
        "edges": plain(torch.linspace(0, top, bins + 1, dtype=torch.float64)),
        "total": plain(torch.histc(total, bins, min=0, max=top)),
        "epistemic": plain(torch.histc(epistemic, bins, min=0, max=top)),
        "epistemic_share": (data.epistemic.sum() / data.variance.sum()).item(),
    }


def regression_groups(data: Gaussians, level: float) -> dict[str, Any]:
    """Rows from narrow to wide in groups of equal number: predicted and actual error (root mean square), coverage."""
    groups, (m, v, y) = _groups(data.std), data.columns
    sizes = torch.tensor([len(rows) for rows in groups], dtype=torch.float64)
    predicted = torch.stack([data.variance[rows].mean().sqrt() for rows in groups])
    chance = normal_margin() / (2 * sizes).sqrt()  # a standard deviation of n normal values is known to 1/√2n
    return {
        "count": [len(rows) for rows in groups],
        "predicted": plain(predicted),
        "observed": plain(torch.stack([data.errors[rows].square().mean().sqrt() for rows in groups])),
        "low": plain((predicted * (1 - chance)).clamp(min=0)),
        "high": plain(predicted * (1 + chance)),
        "coverage": [metrics.coverage(m[rows], v[rows], y[rows], level) for rows in groups],
    }


def class_groups(uncertainty: Float[Tensor, "N"], data: Classes) -> dict[str, Any]:
    """Rows from certain to uncertain in groups of equal number: predicted and actual share of wrong rows."""
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
    """Mean error of the most certain rows as ever more of them are kept, from 2 % to all."""
    curve = metrics.risk_coverage_curve(uncertainty, errors)
    N = len(uncertainty)
    kept = torch.arange(1, points + 1).mul(N).div(points).ceil().long().sub(1).unique()
    return {"kept": plain(curve.coverage[kept]), "error": plain(curve.risk[kept])}


def reliability(data: Classes) -> dict[str, Any]:
    """Confidence and accuracy of the bins that hold rows, with the band that chance explains."""
    curve = metrics.reliability_curve(data.probabilities, data.labels)
    full = curve.count > 0
    confidence, count = curve.confidence[full], curve.count[full]
    return {
        "confidence": plain(confidence),
        "accuracy": plain(curve.accuracy[full]),
        "count": plain(count),
    } | _band(confidence, count)


def confidence_histogram(data: Classes, bins: int = 20) -> dict[str, Any]:
    """How sure the right and the wrong predictions were."""
    return {
        "edges": plain(torch.linspace(0, 1, bins + 1, dtype=torch.float64)),
        "right": plain(torch.histc(data.confidence[~data.wrong], bins, min=0, max=1)),
        "wrong": plain(torch.histc(data.confidence[data.wrong], bins, min=0, max=1)),
    }


def confusion(data: Classes) -> list[list[int]]:
    """Number of rows by true class (outer list) and predicted class (inner list)."""
    C = data.probabilities.shape[1]
    return torch.bincount(data.labels * C + data.predicted, minlength=C * C).view(C, C).tolist()


def _groups(uncertainty: Float[Tensor, "N"]) -> list[Int[Tensor, "n"]]:
    """Row indices from certain to uncertain, in as many groups of equal number as there are rows for."""
    groups = min(GROUPS, max(1, len(uncertainty) // GROUP_ROWS))
    return list(uncertainty.argsort(stable=True).tensor_split(groups))


def _band(shares: Float[Tensor, "K"], rows: int | Tensor) -> dict[str, Any]:
    """Where chance alone would stay if `shares` were right, p ± 2.58 √(p(1 − p)/n): to draw, not to test."""
    margin = normal_margin() * (shares * (1 - shares) / rows).sqrt()
    return {"low": plain((shares - margin).clamp(0, 1)), "high": plain((shares + margin).clamp(0, 1))}
