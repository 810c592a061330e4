"""Targets for heads: labels or real ones, checked, and in units of their own."""

import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from degp.likelihoods import Categorical, Gaussian
from degp.priors.labels import as_real
from degp.typing import Batch

__all__ = ["Targets", "checked_targets"]

MARGIN = 1e3  # between a target's standard deviation and that of its noise, or of its extrapolations

Units = tuple[Float[Tensor, "C"], Float[Tensor, "C"]]  # mean and standard deviation per target


@dataclass(frozen=True)
class Targets:
    """What heads learn.

    Attributes:
        values: real ones (N, C), or labels (N,).
        outputs: C, of the heads.
        units: of real targets; None for labels.
        real: standardised targets, or labels by `degp.priors.labels.as_real`: what the evidence is measured on.
    """

    values: Shaped[Tensor, "N ..."]
    outputs: int
    units: Units | None
    real: Float[Tensor, "N C"]

    @classmethod
    def of(cls, points: Batch, outputs: int, classes: int | None) -> "Targets":
        """Those of points, checked; arguments as in `checked_targets`."""
        values, count = checked_targets(points.targets, outputs, classes)
        if not values.is_floating_point():
            return cls(values, count, None, as_real(values, count, points.weights))
        offset, unit = _units_of(values)
        _require_squares(unit, points.inputs.dtype)
        return cls(values, count, (offset, unit), (values - offset) / unit)

    @property
    def labels(self) -> Int[Tensor, "N"] | None:
        """None for real targets."""
        return self.values if self.units is None else None


def checked_targets(
    targets: Shaped[Tensor, "N ..."], outputs: int, classes: int | None
) -> tuple[Shaped[Tensor, "N ..."], int]:
    """Real targets (N, C) or labels (N,), and the number of outputs that heads need for them.

    Args:
        outputs: of the network.
        classes: their number, where it is not the network's, or where labels are real numbers or one-hot rows.
    """
    if targets.is_floating_point() and classes is None:
        return _checked_values(targets, outputs)
    return _checked_labels(_as_labels(targets, classes), outputs, classes)


def _checked_values(targets: Float[Tensor, "N ..."], outputs: int) -> tuple[Float[Tensor, "N C"], int]:
    columns = targets[:, None] if targets.ndim == 1 else targets
    count = columns.shape[1]
    Gaussian().check(columns, count)
    Gaussian().check_values(columns, count)
    binary = bool(((columns == 0) | (columns == 1)).all())
    if binary or (count == 1 < outputs and bool((columns == columns.round()).all())):
        warnings.warn(
            f"real targets are regressed, but all of these are {'0 or 1' if binary else 'whole numbers'}, and the "
            f"network has {outputs} outputs; pass classes={max(2, outputs)} if they are labels or one-hot rows",
            stacklevel=5,
        )
    return columns, count


def _as_labels(targets: Shaped[Tensor, "N ..."], classes: int | None) -> Shaped[Tensor, "N ..."]:
    """Whole numbers (N,), also of one-hot rows where the number of classes is known."""
    column = targets.ndim == 2 and targets.shape[1] == 1
    if classes is not None and not column and targets.shape[1:] == (classes,):
        if bool(((targets == 0) | (targets == 1)).all() & (targets.sum(1) == 1).all()):
            return targets.long().argmax(1)
    if targets.is_floating_point() and not bool((targets == targets.round()).all()):
        raise ValueError(
            f"classes={classes} needs whole-number labels or one-hot rows, but targets are {targets.dtype} with other "
            f"values; leave classes out for regression"
        )
    return (targets[:, 0] if column else targets).long()


def _checked_labels(
    labels: Shaped[Tensor, "N ..."], outputs: int, classes: int | None
) -> tuple[Shaped[Tensor, "N"], int]:
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


def _units_of(targets: Float[Tensor, "N C"]) -> Units:
    """Mean and standard deviation of each target; those that are constant have the unit one."""
    values = targets.double()  # squares of small or large numbers are 0 or infinite in float32
    offset = values.mean(0)
    spread = (values - offset).square().mean(0).sqrt()
    return offset.to(targets), torch.where(spread > 0, spread, 1.0).to(targets)


def _require_squares(unit: Float[Tensor, "C"], dtype: torch.dtype) -> None:
    """Raises ValueError where variances in these units are no numbers of the dtype."""
    limits = torch.finfo(dtype)
    lowest, highest = MARGIN * limits.tiny**0.5, limits.max**0.5 / MARGIN
    bad = ~((unit >= lowest) & (unit <= highest))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"the standard deviation of a target must lie between {lowest:.0e} and {highest:.0e}, so that {dtype} "
            f"holds variances, but that of target {first} is {float(unit[first]):.1e}; give it another unit, such as "
            f"nm for m"
        )
