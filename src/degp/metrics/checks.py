"""Validation of the metrics' arguments; each check raises a ValueError that names the argument."""

import torch
from torch import Tensor

__all__ = [
    "aligned",
    "check_at_least",
    "check_boolean",
    "check_fraction",
    "check_open_unit",
    "classified",
    "distributions",
    "working_device",
]


def aligned(axes: str, **tensors: Tensor) -> list[Tensor]:
    """The named tensors in float64 on the device of the first: of one shape with the given axes, not empty, finite."""
    first, reference = next(iter(tensors.items()))
    device = working_device(reference.device)
    for name, tensor in tensors.items():
        _check_shape(name, tensor, axes)
        if tensor.shape != reference.shape:
            raise ValueError(
                f"{name} must have the shape of {first}, {tuple(reference.shape)}, but has {tuple(tensor.shape)}; "
                f"pass the same points in both"
            )
    # contiguous: torch.bucketize warns, and copies on every call, otherwise
    converted = {name: t.detach().to(device, torch.float64).contiguous() for name, t in tensors.items()}
    for name, tensor in converted.items():
        _check_finite(name, tensor)
    return list(converted.values())


def working_device(device: torch.device) -> torch.device:
    """The device to compute on: that of the tensors, or the CPU for MPS, which has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def classified(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities (N, C) in float64 and labels (N,) in int64, each label an index of a column."""
    probabilities = distributions(probabilities)
    N, C = probabilities.shape
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers, but have dtype {labels.dtype}; write labels.long()")
    _check_shape("labels", labels, "N")
    if len(labels) != N:
        raise ValueError(
            f"labels must hold one class for each of the {N} rows of probabilities, but hold {len(labels)}; "
            f"pass the same points in both"
        )
    labels = labels.to(probabilities.device, torch.int64)
    outside = (labels < 0) | (labels >= C)
    if outside.any():
        raise ValueError(
            f"labels must lie in 0..{C - 1}, one per column of probabilities, but one of them is {labels[outside][0]}; "
            f"renumber the classes, or drop the points without a class"
        )
    return probabilities, labels


def distributions(probabilities: Tensor, *, tolerance: float = 1e-4) -> Tensor:
    """Probabilities (N, C) in float64, non-negative, each row's sum within `tolerance` of one.

    The default is ample for a float32 softmax over thousands of classes and still catches logits.
    Rows are not rescaled.
    """
    (probabilities,) = aligned("N C", probabilities=probabilities)
    if (probabilities < 0).any():
        raise ValueError(
            f"probabilities must be non-negative, but the smallest is {probabilities.min():.6g}; "
            f"if these are logits, pass logits.softmax(-1)"
        )
    totals = probabilities.sum(-1)
    row = (totals - 1).abs().argmax()
    if (totals[row] - 1).abs() > tolerance:
        raise ValueError(
            f"probabilities must sum to one over the classes, to within {tolerance:g}, "
            f"but row {row} sums to {totals[row]:.6g}; "
            f"compute the softmax in float32 or better, or divide by probabilities.sum(-1, keepdim=True)"
        )
    return probabilities


def check_boolean(name: str, tensor: Tensor) -> None:
    if tensor.dtype != torch.bool:
        raise ValueError(
            f"{name} must be a boolean mask, but has dtype {tensor.dtype}; write {name} == 1 if it holds 0 and 1"
        )


def check_open_unit(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, but is {value}; write 0.9 for 90 %")


def check_fraction(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, but is {value}; write 0.95 for 95 %")


def check_at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, but is {value}; leave it out to get the default")


def _check_shape(name: str, tensor: Tensor, axes: str) -> None:
    shape = tuple(tensor.shape)
    if tensor.ndim != len(axes.split()):
        raise ValueError(
            f"{name} must have the axes ({', '.join(axes.split())}), but has the shape {shape}; "
            f"use {name}[:, None] to make a column and {name}.flatten() to make a vector"
        )
    if tensor.numel() == 0:
        raise ValueError(
            f"{name} must hold at least one value, but has the shape {shape}; is the data or a mask empty?"
        )


def _check_finite(name: str, tensor: Tensor) -> None:
    finite = tensor.isfinite()
    if not finite.all():
        raise ValueError(
            f"{name} must be finite, but {(~finite).sum()} of {tensor.numel()} values are nan or infinite; "
            f"locate them with (~torch.isfinite({name})).nonzero()"
        )
