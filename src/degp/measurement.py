"""Measurement points X_ν ~ ν: where the divergence compares posterior and prior, besides the batch or instead of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from degp.points import Inputs, count_points, join_points, take_points

__all__ = [
    "BatchAndMeasurement",
    "BatchPart",
    "BatchRegion",
    "Combined",
    "Domain",
    "MeasurementAlone",
    "MeasurementSampler",
    "UniformBox",
    "Unlabelled",
    "no_points",
    "points_of",
]


@runtime_checkable
class MeasurementSampler(Protocol):
    """Draws K measurement points for one step, given the batch's inputs; any function of this form will do.

    Example:
        >>> def nearby(inputs, *, generator=None):
        ...     return inputs + 0.1 * torch.randn(inputs.shape, generator=generator)
        >>> Combined((nearby, UniformBox(-3.0, 3.0, count=16)))(torch.zeros(5, 2)).shape
        torch.Size([21, 2])
    """

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
        _require_real(inputs)
        return cls(inputs.amin(0), inputs.amax(0), count)

    def __call__(
        self, inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None
    ) -> Shaped[Tensor, "K ..."]:
        _require_real(inputs)
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


@dataclass(frozen=True)
class Combined:
    """The points of several samplers, in their order.

    Example:
        >>> region, known = UniformBox(-3.0, 3.0, count=16), Unlabelled(torch.zeros(100, 2), count=4)
        >>> Combined((region, known))(torch.zeros(5, 2)).shape
        torch.Size([20, 2])
    """

    samplers: tuple[MeasurementSampler, ...]

    def __post_init__(self) -> None:
        if not self.samplers:
            raise ValueError("there must be at least one sampler to combine, but there is none; use no_points")

    def __call__(self, inputs: Inputs, *, generator: torch.Generator | None = None) -> Inputs:
        return join_points([sampler(inputs, generator=generator) for sampler in self.samplers])


class Unlabelled(nn.Module):
    """`count` random points of a data set without labels, such as images that belong to no class.

    A module, so that the points move to a GPU with the method; they are not saved with it.

    Args:
        points: the whole set, a tensor with one row per point.
        count: points per step, drawn with replacement.
        transform: applied to them, for example the normalisation of the training inputs.
    """

    points: Tensor

    def __init__(
        self, points: Shaped[Tensor, "P ..."], count: int, transform: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        _require_count(count)
        if not len(points):
            raise ValueError("there must be at least one unlabelled point, but there is none; use no_points")
        self.register_buffer("points", points, persistent=False)
        self.count = count
        self.transform = nn.Identity() if transform is None else transform

    def forward(
        self, inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None
    ) -> Shaped[Tensor, "K ..."]:
        rows = torch.randint(len(self.points), (self.count,), generator=generator, device=inputs.device)
        return self.transform(self.points[rows]).to(inputs)

    def __repr__(self) -> str:
        return f"Unlabelled({tuple(self.points.shape)}, {self.count})"


@runtime_checkable
class Domain(Protocol):
    """The points on which the divergence compares posterior and prior, among the batch and the measurement points.

    Example:
        >>> domains: list[Domain] = [BatchAndMeasurement(), MeasurementAlone(), BatchPart(2)]
        >>> [len(points_of(domain, torch.zeros(5, 2), torch.ones(3, 2))) for domain in domains]
        [8, 3, 5]
    """

    def rows(self, batch_size: int) -> slice:
        """Their places among the batch, which comes first, and the measurement points."""
        ...


@dataclass(frozen=True)
class BatchAndMeasurement:
    """X̃ = X_batch ∪ X_ν, as the evidence bound requires.        theory/objectives.md (5)

    Example:
        >>> points_of(BatchAndMeasurement(), torch.zeros(5, 2), torch.ones(3, 2)).shape
        torch.Size([8, 2])
    """

    def rows(self, batch_size: int) -> slice:
        return slice(None)


@dataclass(frozen=True)
class MeasurementAlone:
    """X̃ = X_ν: the divergence leaves the fit on the data alone, and is no longer that of the evidence bound.

    theory/context.md (4)

    Example:
        >>> points_of(MeasurementAlone(), torch.zeros(5, 2), torch.ones(3, 2)).shape
        torch.Size([3, 2])
    """

    def rows(self, batch_size: int) -> slice:
        return slice(batch_size, None)


@dataclass(frozen=True)
class BatchPart:
    """X̃ = the last `count` points of the batch ∪ X_ν: a random part, since batches are in random order.

    Its divergence is at most that on the whole batch, and costs less: the prior is evaluated on fewer points. It is for
    ensembles of fewer members than the batch has points: q has M − 1 directions, and in all others of a larger X̃ the
    divergence compares the prior with λ alone.

    theory/objectives.md (5), theory/context.md (6)

    Example:
        >>> points_of(BatchPart(4), torch.zeros(128, 2), torch.ones(3, 2)).shape
        torch.Size([7, 2])
    """

    count: int

    def __post_init__(self) -> None:
        _require_count(self.count)

    def rows(self, batch_size: int) -> slice:
        return slice(max(0, batch_size - self.count), None)


def points_of(domain: Domain, inputs: Inputs, measurement: Inputs) -> Inputs:
    """X̃, the points of the divergence.

    Example:
        >>> points_of(BatchPart(1), torch.zeros(5, 2), torch.ones(3, 2)).sum(1)
        tensor([0., 2., 2., 2.])
    """
    joint = join_points([inputs, measurement]) if count_points(measurement) else inputs
    points = take_points(joint, domain.rows(count_points(inputs)))
    if not count_points(points):
        raise ValueError("the divergence on measurement points alone needs some, but there is none; pass measurement=…")
    return points


def _require_real(inputs: Inputs) -> None:
    if not (isinstance(inputs, Tensor) and inputs.is_floating_point()):
        kind = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
        raise TypeError(
            f"a box is a region of real inputs, one floating-point tensor (N, …), but the inputs are {kind}; pass a "
            f"function (inputs, *, generator) that draws such points, or no_points"
        )


def _require_count(count: int) -> None:
    if count < 1:
        raise ValueError(
            f"count is a number of points and must be at least 1, but it is {count}; use no_points for none"
        )
