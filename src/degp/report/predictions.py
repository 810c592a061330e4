"""Predictions with their targets, validated once: the records that the report is computed from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp import metrics
from degp.metrics.checks import aligned, classified
from degp.metrics.regression import normal_quantile
from degp.transforms import Identity, Transform

__all__ = [
    "Array",
    "ClassPredictions",
    "GaussianPredictions",
    "class_predictions",
    "finite",
    "gaussian_predictions",
    "plain",
]

Array = Tensor | np.ndarray | Sequence[Any]
IMPOSSIBLE = 40.0  # standard deviations


@dataclass(frozen=True)
class GaussianPredictions:
    """Predictions g = t(y) ~ N(location, spread) of one real output y, their moments in its own units, and targets.

    Attributes:
        location, spread: mean and variance of g.
        mean, epistemic, variance: of y.
        transform: t.
    """

    location: Float[Tensor, "N"]
    spread: Float[Tensor, "N"]
    mean: Float[Tensor, "N"]
    epistemic: Float[Tensor, "N"]
    variance: Float[Tensor, "N"]
    targets: Float[Tensor, "N"]
    transform: Transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: Int[Tensor, "K"]) -> "GaussianPredictions":
        """Of some rows."""
        names = ("location", "spread", "mean", "epistemic", "variance", "targets")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    @property
    def values(self) -> Float[Tensor, "N"]:
        """t(y); far below the prediction where y is impossible."""
        values = self.transform.forward(self.targets)
        return torch.where(values.isfinite(), values, self.location - IMPOSSIBLE * self.spread.sqrt())

    @property
    def columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance of g, and t(y), as the metrics of a Gaussian take them, (N, 1)."""
        return self.location[:, None], self.spread[:, None], self.values[:, None]

    @property
    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, variance and targets in their own units, (N, 1)."""
        return self.mean[:, None], self.variance[:, None], self.targets[:, None]

    @property
    def std(self) -> Float[Tensor, "N"]:
        return self.variance.sqrt()

    @property
    def errors(self) -> Float[Tensor, "N"]:
        return self.targets - self.mean

    @property
    def z(self) -> Float[Tensor, "N"]:
        """Standardised errors of g."""
        return (self.values - self.location) / self.spread.sqrt()

    def targets_at(self, z: Float[Tensor, "N"] | float) -> Float[Tensor, "N"]:
        """The targets of these standardised errors."""
        return self.transform.inverse(self.location + z * self.spread.sqrt())

    def widths(self, level: float) -> Float[Tensor, "N"]:
        """Of the central intervals of this probability."""
        return self.targets_at(normal_quantile(level)) - self.targets_at(-normal_quantile(level))

    def coverage(self, level: float) -> float:
        """The fraction of the targets inside the central intervals of this probability."""
        return metrics.coverage(*self.columns, level)

    def crps(self) -> float:
        """In the units of the targets."""
        return self.transform.crps(self.location[:, None], self.spread[:, None], self.targets[:, None])

    def nll(self) -> float:
        """The mean of −log p(y), infinite where a target is impossible."""
        if not self.transform.forward(self.targets).isfinite().all():
            return math.inf
        slope = self.transform.log_slope(self.values[:, None]).mean().item()
        return metrics.gaussian_nll(*self.columns) + slope


@dataclass(frozen=True)
class ClassPredictions:
    """Predicted class probabilities with their epistemic uncertainty, and the true labels."""

    probabilities: Float[Tensor, "N C"]
    epistemic: Float[Tensor, "N"]
    labels: Int[Tensor, "N"]

    def __getitem__(self, rows: Int[Tensor, "K"]) -> "ClassPredictions":
        """Of some rows."""
        return ClassPredictions(self.probabilities[rows], self.epistemic[rows], self.labels[rows])

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def confidence(self) -> Float[Tensor, "N"]:
        return self.probabilities.max(-1).values

    @property
    def predicted(self) -> Int[Tensor, "N"]:
        return self.probabilities.argmax(-1)

    @property
    def wrong(self) -> Bool[Tensor, "N"]:
        return self.predicted != self.labels


def gaussian_predictions(
    mean: Array,
    epistemic_variance: Array,
    total_variance: Array,
    targets: Array,
    transform: Transform,
) -> GaussianPredictions:
    """Four columns of equal length in float64 on the CPU: finite, with valid variances."""
    m, epistemic, total, y = aligned(
        "N",
        mean=_tensor(mean),
        epistemic_variance=_tensor(epistemic_variance),
        total_variance=_tensor(total_variance),
        targets=_tensor(targets),
    )
    if epistemic.min() < 0:
        raise ValueError(
            f"epistemic_variance must be non-negative, but the smallest is {epistemic.min():.6g}; "
            f"correct a variance computed by a difference of moments"
        )
    if total.min() <= 0:
        raise ValueError(
            f"total_variance must be positive, but the smallest is {total.min():.6g}; "
            f"pass the epistemic variance plus the variance of the noise"
        )
    aleatoric = (total - epistemic).clamp_min(0.0)
    own = [part[:, 0] for part in transform.moments(m[:, None], epistemic[:, None], aleatoric[:, None])]
    variance = total if transform == Identity() else own[1] + own[2]
    return GaussianPredictions(m, total, own[0], own[1], variance, y, transform)


def class_predictions(probabilities: Array, epistemic: Array, labels: Array) -> ClassPredictions:
    """Probabilities that sum to one, labels that index their columns, and one epistemic uncertainty per row."""
    p, y = classified(_tensor(probabilities), _tensor(labels))
    _, uncertainty = aligned("N", probabilities=p[:, 0], epistemic=_tensor(epistemic))
    return ClassPredictions(p, uncertainty, y)


def plain(values: Tensor) -> list[Any]:
    """A list of numbers, with None for those that are not finite."""
    return [finite(value) for value in values.tolist()]


def finite(value: int | float) -> int | float | None:
    """The number, or None if it is NaN or infinite, which JSON cannot represent."""
    return value if math.isfinite(value) else None


def _tensor(values: Array) -> Tensor:
    # through NumPy, because torch converts a list to float32
    return (values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))).detach().cpu()
