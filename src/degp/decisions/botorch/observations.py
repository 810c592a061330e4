"""Validated observations, with inputs scaled to the unit cube and outcomes standardised."""

from dataclasses import dataclass

import torch
from botorch.models.transforms.input import InputTransform, Normalize
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from jaxtyping import Float
from torch import Tensor

from degp.data import check_inputs
from degp.typing import Batch

__all__ = ["Observations"]


@dataclass(frozen=True)
class Observations:
    """Transformed observations and their fitted transforms."""

    data: Batch
    input_transform: InputTransform
    outcome_transform: OutcomeTransform

    @classmethod
    def transformed(
        cls,
        train_X: Float[Tensor, "N ..."],
        train_Y: Float[Tensor, "K ..."],
        bounds: Float[Tensor, "..."] | None,
        input_transform: InputTransform | None,
        outcome_transform: OutcomeTransform | None,
    ) -> "Observations":
        """Fits and applies the given transforms; by default to the unit cube and to mean 0 and standard deviation 1."""
        _check(train_X, train_Y)
        D, C = train_X.shape[1], train_Y.shape[1]
        inputs = Normalize(D, bounds=_region(train_X, bounds)) if input_transform is None else input_transform
        outcomes = Standardize(C) if outcome_transform is None else outcome_transform
        x = inputs.train()(train_X)
        y, _ = outcomes.train()(train_Y, X=x)
        return cls(Batch(x, y), inputs.eval(), outcomes.eval())


def _check(train_X: Tensor, train_Y: Tensor) -> None:
    if train_X.ndim != 2 or train_Y.ndim != 2 or len(train_X) != len(train_Y):
        raise ValueError(
            f"observations must be rows, train_X (N, D) and train_Y (N, C), but their shapes are "
            f"{tuple(train_X.shape)} and {tuple(train_Y.shape)}; a single outcome is (N, 1), for example Y[:, None], "
            f"and batches of data sets are fitted one by one"
        )
    if len(train_X) < 2:
        raise ValueError(f"at least 2 observations are needed to find a scale, but there is {len(train_X)}")
    check_inputs(train_X)
    if not bool(train_Y.isfinite().all()):
        row = int((~train_Y.isfinite()).any(1).nonzero()[0])
        raise ValueError(f"outcomes must be finite, but row {row} is {train_Y[row].tolist()}; drop such rows")


def _region(train_X: Float[Tensor, "N D"], bounds: Float[Tensor, "..."] | None) -> Float[Tensor, "2 D"]:
    """The bounds, or those of the data; a constant feature gets a width of 1."""
    if bounds is None:
        low, high = train_X.amin(0), train_X.amax(0)
        return torch.stack([low, torch.where(high > low, high, low + 1)])
    if bounds.shape != (2, train_X.shape[1]):
        raise ValueError(
            f"bounds must be a row of lower and a row of upper bounds, (2, D) = (2, {train_X.shape[1]}), but their "
            f"shape is {tuple(bounds.shape)}"
        )
    if not bool((bounds[0] < bounds[1]).all()):
        raise ValueError(f"every lower bound must be below its upper bound, but bounds are {bounds.tolist()}")
    return bounds.to(train_X)
