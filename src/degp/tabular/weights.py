"""Weights of a table's rows, from scikit-learn's `sample_weight` and `class_weight`."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_sample_weight
from torch import Tensor

from degp.data import check_weights

__all__ = ["weighted_rows"]

Array = NDArray[Any]


def weighted_rows(
    X: Array, y: Array, sample_weight: Any, class_weight: Any = None
) -> tuple[Array, Array, Float64[Tensor, "N"] | None]:
    """The rows of positive weight, their targets and their weights; no weights where all are equal.

    Weights are relative, and those of sample and class are multiplied. A row of weight 0 is absent.
    """
    if sample_weight is None and class_weight is None:
        return X, y, None
    weights = np.ones(len(X)) if sample_weight is None else _checked(sample_weight, len(X))
    X, y, weights = _positive(X, y, weights)
    X, y, weights = _positive(X, y, weights * compute_sample_weight(class_weight, y))
    return X, y, None if (weights == weights[0]).all() else torch.from_numpy(weights)


def _checked(sample_weight: Any, num_rows: int) -> Array:
    weights = np.array(sample_weight, dtype=np.float64)
    if weights.shape != (num_rows,):
        raise ValueError(
            f"sample_weight must have one number per row, ({num_rows},), but its shape is {weights.shape}; select the "
            f"same rows of X, y and sample_weight"
        )
    return weights


def _positive(X: Array, y: Array, weights: Array) -> tuple[Array, Array, Array]:
    check_weights(torch.from_numpy(weights))
    kept = weights > 0
    return (X, y, weights) if kept.all() else (X[kept], y[kept], weights[kept])
