"""The metrics of the report, and their bootstrap intervals."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp import metrics
from degp.metrics.checks import check_at_least
from degp.report.predictions import ClassPredictions, GaussianPredictions, finite
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
        compute: its value from the predictions and their targets.
        minimum: the lowest possible value, which clips its interval.
    """

    label: str
    unit: str
    best: str | float | None
    compute: Callable[..., float]
    minimum: float = 0.0


def regression_metrics(level: float) -> dict[str, Metric]:
    """The metrics of real targets, by name; each is a function of `GaussianPredictions`."""
    coverages = {
        f"coverage_{round(100 * p):d}": Metric(
            f"Coverage at {percent(p)}", "fraction", p, lambda data, p=p: data.coverage(p)
        )
        for p in LEVELS
    }
    return {
        "rmse": Metric("RMSE", "target", "lower", lambda data: metrics.rmse(*data.moments[::2])),
        "mae": Metric("Mean absolute error", "target", "lower", lambda data: metrics.mae(*data.moments[::2])),
        "r2": Metric(
            "Explained variance (R²)", "plain", "higher", lambda data: explained(*data.moments[::2]), -math.inf
        ),
        "nll": Metric("Negative log-likelihood", "nats", "lower", lambda data: data.nll(), -math.inf),
        "crps": Metric("CRPS", "target", "lower", lambda data: data.crps()),
        **coverages,
        "interval_width": Metric(
            f"Mean width at {percent(level)}", "target", None, lambda data: data.widths(level).mean().item()
        ),
        "calibration_error": Metric(
            "Calibration error", "fraction", "lower", lambda data: metrics.calibration_error(*data.columns)
        ),
        "rank_correlation": Metric(
            "Rank correlation, error and width",
            "plain",
            "higher",
            lambda data: rank_correlation(data.errors.abs(), data.variance),
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


CLASS_METRICS = {  # each a function of `ClassPredictions`
    "accuracy": Metric("Accuracy", "fraction", "higher", lambda d: metrics.accuracy(d.probabilities, d.labels)),
    "roc_auc": Metric("ROC-AUC", "fraction", "higher", lambda d: roc_auc(d.probabilities, d.labels)),
    "nll": Metric("Negative log-likelihood", "nats", "lower", lambda d: metrics.nll(d.probabilities, d.labels)),
    "brier": Metric("Brier score", "plain", "lower", lambda d: metrics.brier(d.probabilities, d.labels)),
    "ece": Metric("Calibration error (ECE)", "fraction", "lower", lambda d: metrics.ece(d.probabilities, d.labels)),
    "auroc_total": Metric(
        "Error detection (AUROC)",
        "fraction",
        "higher",
        lambda d: detect(metrics.entropy(d.probabilities), d.wrong),
    ),
    "auroc_epistemic": Metric(
        "Error detection, epistemic (AUROC)",
        "fraction",
        "higher",
        lambda d: detect(d.epistemic, d.wrong) if d.epistemic.any() else math.nan,
    ),
}
Predictions = GaussianPredictions | ClassPredictions


def measure(measured: Mapping[str, Metric], data: Predictions, sampling: Resampling) -> dict[str, Any]:
    """Each metric with its 95 % bootstrap interval; all metrics share the resampled rows."""
    check_at_least("resamples", sampling.count, 2)

    def values(rows: Tensor) -> Tensor:
        chosen = data[rows]
        return torch.tensor([metric.compute(chosen) for metric in measured.values()], dtype=torch.float64)

    N = len(data)
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
