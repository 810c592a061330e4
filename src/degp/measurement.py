"""Where the posterior meets the prior besides the data: extra measurement points X_ν ~ ν."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


@runtime_checkable
class MeasurementSampler(Protocol):
    """Draws extra points for one step, K of them, given the batch's inputs; any function of this form will do."""

    def __call__(
        self, inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None
    ) -> Shaped[Tensor, "K ..."]: ...


def no_points(inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None) -> Shaped[Tensor, "0 ..."]:
    """No extra points: the prior is met on the data alone."""
    return inputs[:0]


@dataclass(frozen=True)
class UniformBox:
    """`count` points uniform between `low` and `high`, numbers or one a feature."""

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
        """The region of the data: each feature between its least and its greatest value."""
        return cls(inputs.amin(0), inputs.amax(0), count)

    def __call__(
        self, inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None
    ) -> Shaped[Tensor, "K ..."]:
        low, high = (torch.as_tensor(bound).to(inputs) for bound in (self.low, self.high))
        share = torch.rand(self.count, *inputs.shape[1:], dtype=inputs.dtype, device=inputs.device, generator=generator)
        return low + (high - low) * share


@dataclass(frozen=True)
class BatchRegion:
    """`count` points uniform over the region of the batch itself: for data that are never seen as a whole."""

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
            f"count is how many extra points to draw and must be at least 1, but it is {count}; use no_points"
        )
