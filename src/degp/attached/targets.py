"""Targets for heads: labels or real ones, checked, and the likelihood with their units."""

import warnings

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from degp.likelihoods import Categorical, Gaussian
from degp.priors.evidence import Scales

__all__ = ["Units", "checked_targets", "likelihood_of", "units_of"]

Units = tuple[Float[Tensor, "C"], Float[Tensor, "C"]]  # mean and standard deviation per target


def checked_targets(
    targets: Shaped[Tensor, "N ..."], outputs: int, classes: int | None
) -> tuple[Shaped[Tensor, "N ..."], int]:
    """Real targets (N, C) or labels (N,), and the number of outputs that heads need for them.

    Args:
        outputs: of the network.
        classes: their number, where it is not the network's.
    """
    if targets.is_floating_point():
        return _checked_values(targets, outputs, classes)
    return _checked_labels(targets, outputs, classes)


def _checked_values(
    targets: Float[Tensor, "N ..."], outputs: int, classes: int | None
) -> tuple[Float[Tensor, "N C"], int]:
    if classes is not None:
        raise ValueError(
            f"classes={classes} needs whole-number labels, but targets are {targets.dtype}; pass targets.long(), or "
            f"leave classes out for regression"
        )
    columns = targets[:, None] if targets.ndim == 1 else targets
    count = columns.shape[1]
    Gaussian().check(columns, count)
    Gaussian().check_values(columns, count)
    if count == 1 < outputs and bool((columns == columns.round()).all()):
        warnings.warn(
            f"real targets are regressed, but all of these are whole numbers, and the network has {outputs} outputs; "
            f"pass targets.long() if they are classes",
            stacklevel=4,
        )
    return columns, count


def _checked_labels(
    targets: Shaped[Tensor, "N ..."], outputs: int, classes: int | None
) -> tuple[Shaped[Tensor, "N"], int]:
    labels = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    labels = labels.long()
    Categorical().check(labels, outputs)
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0:
        Categorical().check_values(labels, outputs)
    count = max(2, outputs) if classes is None else classes
    if classes is None and highest + 1 != count:
        raise ValueError(
            f"labels must be those of the network's {outputs} outputs, but they reach from {lowest} to {highest}; pass "
            f"classes=…, the number of classes, or real targets as targets.float()"
        )
    if not max(2, highest + 1) <= count:
        raise ValueError(
            f"classes must be at least 2 and above all labels, but it is {classes}, and labels reach from {lowest} to "
            f"{highest}; pass the number of classes, which are counted from 0"
        )
    return labels, count


def units_of(targets: Float[Tensor, "N C"]) -> Units:
    """Mean and standard deviation of each target; those that are constant have the unit one."""
    offset = targets.mean(0)
    spread = (targets - offset).square().mean(0).sqrt()
    return offset, torch.where(spread > 0, spread, 1.0)


def likelihood_of(scales: Scales, units: Units | None) -> Categorical | Gaussian:
    """Gaussian noise by evidence, which is learned, in the units of the targets; without units, classes."""
    if units is None:
        return Categorical()
    offset, unit = (values.tolist() for values in units)
    return Gaussian([scales.noise_variance] * len(unit), learned=True, units=(offset, unit))
