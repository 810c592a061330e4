"""Predictions with their targets, validated once: the records that the report is computed from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp.metrics.checks import aligned, classified

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


@dataclass(frozen=True)
class GaussianPredictions:
    """Predictions N(m, σ²) of one real output, and its targets."""

    mean: Float[Tensor, "N"]
    epistemic: Float[Tensor, "N"]
    variance: Float[Tensor, "N"]
    targets: Float[Tensor, "N"]

    @property
    def columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, variance and targets as the metrics take them, (N, 1)."""
        return self.mean[:, None], self.variance[:, None], self.targets[:, None]

    @property
    def std(self) -> Float[Tensor, "N"]:
        return self.variance.sqrt()

    @property
    def errors(self) -> Float[Tensor, "N"]:
        return self.targets - self.mean


@dataclass(frozen=True)
class ClassPredictions:
    """Predicted class probabilities with their epistemic uncertainty, and the true labels."""

    probabilities: Float[Tensor, "N C"]
    epistemic: Float[Tensor, "N"]
    labels: Int[Tensor, "N"]

    @property
    def columns(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.probabilities, self.epistemic, self.labels

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
    mean: Array, epistemic_variance: Array, total_variance: Array, targets: Array
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
    return GaussianPredictions(m, epistemic, total, y)


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
