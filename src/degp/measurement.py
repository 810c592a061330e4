"""Measurement points X_ν ~ ν: where the divergence compares posterior and prior, besides the batch."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from degp.points import Inputs, take_points

__all__ = ["BatchRegion", "MeasurementSampler", "UniformBox", "no_points"]


@runtime_checkable
class MeasurementSampler(Protocol):
    """Draws K measurement points for one step, given the batch's inputs; any function of this form will do."""

    def __call__(self, inputs: Inputs, *, generator: torch.Generator | None = None) -> Inputs: ...


def no_points(inputs: Inputs, *, generator: torch.Generator | None = None) -> Inputs:
    """No measurement points: the divergence is measured on the batch alone.

    Example:
        >>> no_points(torch.zeros(5, 2)).shape
        torch.Size([0, 2])
    """
    return take_points(inputs, slice(0))


@dataclass(frozen=True)
class UniformBox:
    """`count` points uniform between `low` and `high`, numbers or one per feature.

    Example:
        >>> UniformBox(-3.0, 3.0, count=16)(torch.zeros(5, 2)).shape
        torch.Size([16, 2])
    """

    low: Float[Tensor, "..."] | float
    high: Float[Tensor, "..."] | float
    count: int

    def __post_init__(self) -> None:
        low, high = (torch.as_tensor(bound) for bound in (self.low, self.high))
        if not bool((low <= high).all()):
            raise ValueError(f"a box needs low ≤ high in every feature, but low is {self.low} and high {self.high}")
        _require_count(self.count)

    @classmethod
    def around(cls, inputs: Shaped[Tensor, "N ..."], count: int) -> "UniformBox":
        """The bounding box of the data: each feature between its minimum and its maximum."""
        return cls(inputs.amin(0), inputs.amax(0), count)

    def __call__(
        self, inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None
    ) -> Shaped[Tensor, "K ..."]:
        low, high = (torch.as_tensor(bound).to(inputs) for bound in (self.low, self.high))
        share = torch.rand(self.count, *inputs.shape[1:], dtype=inputs.dtype, device=inputs.device, generator=generator)
        return low + (high - low) * share


@dataclass(frozen=True)
class BatchRegion:
    """`count` points uniform over the bounding box of the batch: for data that are never in memory as a whole.

    Example:
        >>> BatchRegion(4)(torch.rand(10, 2)).shape
        torch.Size([4, 2])
    """

    count: int

    def __post_init__(self) -> None:
        _require_count(self.count)

    def __call__(
        self, inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None
    ) -> Shaped[Tensor, "K ..."]:
        return UniformBox.around(inputs, self.count)(inputs, generator=generator)


def _require_count(count: int) -> None:
    if count < 1:
        raise ValueError(
            f"count is the number of measurement points and must be at least 1, but it is {count}; use no_points"
        )
