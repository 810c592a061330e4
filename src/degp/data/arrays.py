"""Arrays, lists and tensors as a `Batch`, with clear errors for unusable values."""

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike
from torch import Tensor

from degp.points import Inputs, count_points, tensors_of
from degp.typing import Batch

__all__ = ["as_batch", "check_inputs", "check_weights", "relative"]


def as_batch(
    inputs: ArrayLike | Tensor, targets: ArrayLike | Tensor, weights: ArrayLike | Tensor | None = None
) -> Batch:
    """A batch from arrays or lists, whose real numbers become float32, or from tensors, which keep their dtype.

    Real targets (N,) become one column (N, 1); integer targets stay labels (N,). Weights are relative: they are
    scaled to mean one.

    Example:
        >>> batch = as_batch([[1.0, 2.0], [3.0, 4.0]], [[0.5], [1.5]])
        >>> batch.inputs.shape, batch.targets.shape, batch.population
        (torch.Size([2, 2]), torch.Size([2, 1]), 2)
    """
    x, y = _as_tensor(inputs, "inputs"), _as_tensor(targets, "targets")
    if y.ndim == 1 and y.is_floating_point():
        y = y[:, None]
    check_inputs(x)
    w = None if weights is None else relative(_as_real(weights, "weights"))
    return Batch(x, y, weights=w)


def check_inputs(inputs: Inputs) -> None:
    """Raises ValueError where inputs have no rows, or have values that are not finite.

    Example:
        >>> check_inputs(torch.zeros(3, 2))  # a ValueError where a value is not finite
    """
    if not count_points(inputs):
        raise ValueError("there must be at least one row of data, but inputs have none; was everything filtered out?")
    for tensor in tensors_of(inputs):
        _require_finite(tensor)


def _require_finite(inputs: Shaped[Tensor, "N ..."]) -> None:
    bad = ~inputs.isfinite().flatten(1).all(1) if inputs.ndim > 1 else ~inputs.isfinite()
    if bool(bad.any()):
        raise ValueError(
            f"inputs must be finite, but {int(bad.sum())} of {len(inputs)} rows have NaN or infinite values, the first "
            f"is row {int(bad.nonzero()[0])}; drop these rows or fill them in"
        )


def check_weights(weights: Float[Tensor, "N"]) -> None:
    """Raises ValueError where a weight is negative or not finite, or where none is positive.

    Example:
        >>> check_weights(torch.tensor([1.0, 0.0, 2.5]))  # a ValueError where one is negative
    """
    bad = ~(weights.isfinite() & (weights >= 0))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"weights must be finite and not negative, but {int(bad.sum())} of {len(weights)} are not, the first is "
            f"{float(weights[row])} in row {row}; give a row that should not count the weight 0"
        )
    if not bool((weights > 0).any()):
        raise ValueError(
            f"some weight must be positive, but all {len(weights)} are zero; leave weights out to count all"
        )


def relative(weights: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """The weights scaled to mean one, so that N rows count for N observations."""
    check_weights(weights)
    return weights / weights.mean()


def _as_real(values: ArrayLike | Tensor, name: str) -> Float[Tensor, "..."]:
    tensor = _as_tensor(values, name)
    return tensor if tensor.is_floating_point() else tensor.float()


def _as_tensor(values: ArrayLike | Tensor, name: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be numbers, but their type is {array.dtype}; encode text and dates as numbers first"
        )
    native = np.float32 if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(array, native, ["C", "W"]))  # writable: torch warns of others
