"""The metrics of the report, and their bootstrap intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp import metrics
from degp.metrics.checks import check_at_least
from degp.report.predictions import finite
from degp.report.statistics import Resampling, bootstrap_intervals, rank_correlation
from degp.report.verdict import percent

__all__ = ["CLASS_METRICS", "Metric", "detect", "explained", "measure", "regression_metrics", "roc_auc"]

LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Metric:
    """A metric in the report.

    Attributes:
        unit: "fraction", "target" (that of the targets), "nats" or "plain".
        best: "lower", "higher", the ideal value, or None if neither is better by itself.
        compute: its value from the columns of the data.
        minimum: the lowest possible value, which clips its interval.
    """

    label: str
    unit: str
    best: str | float | None
    compute: Callable[..., float]
    minimum: float = 0.0


def regression_metrics(level: float) -> dict[str, Metric]:
    """The metrics of real targets, by name; each is a function of mean, variance and targets, (N, 1)."""
    coverages = {
        f"coverage_{round(100 * p):d}": Metric(
            f"Coverage at {percent(p)}", "fraction", p, lambda m, v, y, p=p: metrics.coverage(m, v, y, p)
        )
        for p in LEVELS
    }
    return {
        "rmse": Metric("RMSE", "target", "lower", lambda m, v, y: metrics.rmse(m, y)),
        "mae": Metric("Mean absolute error", "target", "lower", lambda m, v, y: metrics.mae(m, y)),
        "r2": Metric("Explained variance (R²)", "plain", "higher", lambda m, v, y: explained(m, y), -math.inf),
        "nll": Metric("Negative log-likelihood", "nats", "lower", metrics.gaussian_nll, -math.inf),
        "crps": Metric("CRPS", "target", "lower", metrics.crps),
        **coverages,
        "interval_width": Metric(
            f"Mean width at {percent(level)}",
            "target",
            None,
            lambda m, v, y: metrics.interval_width(v, level),
        ),
        "calibration_error": Metric("Calibration error", "fraction", "lower", metrics.calibration_error),
        "rank_correlation": Metric(
            "Rank correlation, error and width",
            "plain",
            "higher",
            lambda m, v, y: rank_correlation((y - m).abs().flatten(), v.flatten()),
            -1.0,
        ),
    }


def explained(mean: Float[Tensor, "N 1"], targets: Float[Tensor, "N 1"]) -> float:
    """R² = 1 − Σ(y − m)² / Σ(y − ȳ)²; NaN if all targets are equal."""
    spread = (targets - targets.mean()).square().sum().item()
    return 1 - (targets - mean).square().sum().item() / spread if spread > 0 else math.nan


def detect(uncertainty: Float[Tensor, "N"], wrong: Bool[Tensor, "N"]) -> float:
    """AUROC of the uncertainty for misclassified rows; NaN if all rows are correct, or all wrong."""
    return math.nan if wrong.all() or not wrong.any() else metrics.auroc(uncertainty, wrong)


def roc_auc(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> float:
    """Area under the ROC curve: of two classes for the second, of more the mean over one class against the rest.

    Classes without rows are left out; NaN if all rows are of one class.
    """
    classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    areas = [detect(probabilities[:, c], labels == c) for c in classes]
    defined = [area for area in areas if not math.isnan(area)]
    return sum(defined) / len(defined) if defined else math.nan


CLASS_METRICS = {  # each a function of probabilities (N, C), epistemic uncertainty (N,) and labels (N,)
    "accuracy": Metric("Accuracy", "fraction", "higher", lambda p, e, y: metrics.accuracy(p, y)),
    "roc_auc": Metric("ROC-AUC", "fraction", "higher", lambda p, e, y: roc_auc(p, y)),
    "nll": Metric("Negative log-likelihood", "nats", "lower", lambda p, e, y: metrics.nll(p, y)),
    "brier": Metric("Brier score", "plain", "lower", lambda p, e, y: metrics.brier(p, y)),
    "ece": Metric("Calibration error (ECE)", "fraction", "lower", lambda p, e, y: metrics.ece(p, y)),
    "auroc_total": Metric(
        "Error detection (AUROC)",
        "fraction",
        "higher",
        lambda p, e, y: detect(metrics.entropy(p), p.argmax(-1) != y),
    ),
    "auroc_epistemic": Metric(
        "Error detection, epistemic (AUROC)",
        "fraction",
        "higher",
        lambda p, e, y: detect(e, p.argmax(-1) != y) if e.any() else math.nan,
    ),
}


def measure(measured: Mapping[str, Metric], columns: Sequence[Tensor], sampling: Resampling) -> dict[str, Any]:
    """Each metric with its 95 % bootstrap interval; all metrics share the resampled rows."""
    check_at_least("resamples", sampling.count, 2)

    def values(rows: Tensor) -> Tensor:
        chosen = [column[rows] for column in columns]
        return torch.tensor([metric.compute(*chosen) for metric in measured.values()], dtype=torch.float64)

    N = len(columns[0])
    observed = values(torch.arange(N))
    ends = bootstrap_intervals(values, observed, N, sampling=sampling)
    triples = torch.cat([observed[None], ends]).T.tolist()
    return {
        name: {
            "label": metric.label,
            "unit": metric.unit,
            "best": metric.best,
            "value": finite(value),
            "low": finite(max(low, metric.minimum)),
            "high": finite(min(high, 1.0) if metric.unit == "fraction" else high),
        }
        for (name, metric), (value, low, high) in zip(measured.items(), triples, strict=True)
    }
