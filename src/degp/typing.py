"""The records of the pipeline: batches of data go in, a loss with its terms comes out."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from degp.points import Inputs, count_points, device_of, map_tensors, take_points

__all__ = ["Batch", "Loss"]


@dataclass(frozen=True)
class Batch:
    """Some points of a data set, and the size of that data set.

    Attributes:
        inputs: one row per point, any shape after the first axis; or tuples and dictionaries of such tensors.
        targets: real rows (B, C) for regression, integer labels (B,) for classes.
        population: N, the size of the training set that the batch is part of; its own size by default. It scales
            the divergence (α B/N) and the weight penalties (1/N).
    """

    inputs: Inputs
    targets: Shaped[Tensor, "B ..."]
    population: int = 0

    def __post_init__(self) -> None:
        size = count_points(self.inputs)
        if not isinstance(self.targets, Tensor):
            raise TypeError(
                f"inputs and targets must be tensors, but targets are a {type(self.targets).__name__}; "
                f"use degp.data.as_batch for arrays and lists"
            )
        if size != len(self.targets):
            raise ValueError(
                f"inputs and targets must have one row per point each, but there are {size} rows of inputs "
                f"and {len(self.targets)} of targets; check how the data were split"
            )
        if self.population == 0:
            object.__setattr__(self, "population", size)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def device(self) -> torch.device:
        """Where the inputs are."""
        return device_of(self.inputs)

    def __getitem__(self, rows: Tensor | slice) -> "Batch":
        """The chosen rows, of the same population."""
        return Batch(take_points(self.inputs, rows), self.targets[rows], self.population)

    def to(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Batch":
        """The same batch on another device or in another precision; only floating-point tensors change their dtype."""
        inputs = map_tensors(lambda tensor: _moved(tensor, device, dtype), self.inputs)
        targets = _moved(self.targets, device, dtype)
        return Batch(inputs, targets, self.population)


def _moved(tensor: Tensor, device: torch.device | str | None, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)


@dataclass(frozen=True)
class Loss:
    """The loss of one step and its terms (detached, each in its own natural unit)."""

    total: Float[Tensor, ""]
    terms: Mapping[str, Float[Tensor, ""]]

    def non_finite(self) -> list[str]:
        """Names of the terms that are NaN or infinite, `total` last; reads one value from the device."""
        names = [*self.terms, "total"]
        values = torch.stack([term.double() for term in (*self.terms.values(), self.total.detach())])
        return [name for name, finite in zip(names, values.isfinite().tolist(), strict=True) if not finite]
