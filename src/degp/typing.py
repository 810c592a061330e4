"""The records of the pipeline: batches of data go in, a loss with its terms comes out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from degp.points import Inputs, as_inputs, count_points, device_of, join_points, map_tensors, take_points

__all__ = ["Batch", "Loss", "joined"]


@dataclass(frozen=True)
class Batch:
    """Some points of a data set, and the size of that data set.

    Attributes:
        inputs: one row per point, any shape after the first axis; or tuples and dictionaries of such tensors.
        targets: real rows (B, C) for regression, integer labels (B,) for classes.
        population: N, the size of the training set that the batch is part of; its own size by default. It scales
            the divergence (α B/N) and the weight penalties (1/N).
        weights: how many observations each point counts for; None for one each. They multiply the data term, so that
            a mean of one over the training set keeps its size, and N its meaning.
        stated: whether the population was given, here or as the size of the data set that these are rows of. A loop
            of your own needs it (`batch_loss`): a batch of a loader is not the whole training set.
    """

    inputs: Inputs
    targets: Shaped[Tensor, "B ..."]
    population: int = 0
    weights: Float[Tensor, "B"] | None = None
    stated: bool | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", as_inputs(self.inputs))
        size = count_points(self.inputs)
        for name in ("targets", "weights"):
            values = getattr(self, name)
            if not (isinstance(values, Tensor) or (name == "weights" and values is None)):
                raise TypeError(
                    f"inputs, targets and weights must be tensors, but {name} are a {type(values).__name__}; "
                    f"use degp.data.as_batch for arrays and lists"
                )
        if self.targets.ndim == 0 or size != len(self.targets):
            rows = len(self.targets) if self.targets.ndim else "a single number instead"
            raise ValueError(
                f"inputs and targets must have one row per point each, but there are {size} rows of inputs "
                f"and {rows} of targets; check how the data were split"
            )
        if self.population < 0:
            raise ValueError(
                f"the population is the size of the training set and must be positive, but it is {self.population}; "
                f"leave it out where the batch is the whole set"
            )
        if self.weights is not None and self.weights.shape != (size,):
            raise ValueError(
                f"there must be one weight per point, ({size},), but the shape of the weights is "
                f"{tuple(self.weights.shape)}; check how the data were split"
            )
        if self.stated is None:
            object.__setattr__(self, "stated", self.population != 0)
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
        weights = None if self.weights is None else self.weights[rows]
        return Batch(take_points(self.inputs, rows), self.targets[rows], self.population, weights, stated=True)

    def weigh(self, values: Float[Tensor, "*M B"]) -> Float[Tensor, "*M B"]:
        """Values per point times the points' weights."""
        return values if self.weights is None else values * self.weights.to(values)

    def to(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Batch":
        """The same batch on another device or in another precision; only floating-point tensors change their dtype."""
        inputs = map_tensors(lambda tensor: _moved(tensor, device, dtype), self.inputs)
        targets = _moved(self.targets, device, dtype)
        weights = None if self.weights is None else _moved(self.weights, device, dtype)
        return replace(self, inputs=inputs, targets=targets, weights=weights)


def joined(*batches: Batch) -> Batch:
    """The points of all as one data set; where one has weights, those of a batch without any are ones."""
    inputs = join_points([batch.inputs for batch in batches])
    targets = torch.cat([batch.targets for batch in batches])
    known = [batch.weights for batch in batches if batch.weights is not None]
    weights = [known[0].new_ones(len(batch)) if batch.weights is None else batch.weights for batch in batches if known]
    return Batch(inputs, targets, weights=torch.cat(weights) if known else None)


def _moved(tensor: Tensor, device: torch.device | str | None, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)


@dataclass(frozen=True)
class Loss:
    """The loss of one step and its terms (detached, each in its own natural unit).

    Example:
        >>> loss = Loss(torch.tensor(3.0), {"data": torch.tensor(2.0), "kl": torch.tensor(float("nan"))})
        >>> loss.non_finite()
        ['kl']
    """

    total: Float[Tensor, ""]
    terms: Mapping[str, Float[Tensor, ""]]

    def non_finite(self) -> list[str]:
        """Names of the terms that are NaN or infinite, `total` last; reads one value from the device."""
        names = [*self.terms, "total"]
        values = torch.stack([term.double() for term in (*self.terms.values(), self.total.detach())])
        return [name for name, finite in zip(names, values.isfinite().tolist(), strict=True) if not finite]
