"""Standardisation: features of mean 0 and standard deviation 1, and its inverse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from degp.data.arrays import check_inputs

__all__ = ["Standardiser"]


@dataclass(frozen=True)
class Standardiser:
    """z = (x − mean) / std per feature; a constant feature has std 1 and becomes 0.

        scale = Standardiser.fit(train.inputs)
        scale.apply(train.inputs), scale.apply(test.inputs)

    The standard deviation is the population one, with 1/N.

    Example:
        >>> scale = Standardiser.fit(torch.tensor([[1.0], [3.0]]))
        >>> scale.apply(torch.tensor([[5.0]]))
        tensor([[3.]])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not all(std > 0 for std in self.std):
            raise ValueError(
                f"there must be one mean and one positive std for each feature, but mean is {self.mean} and std is "
                f"{self.std}; fit both with Standardiser.fit"
            )

    @classmethod
    def fit(cls, array: Float[Tensor, "N D"], weights: Float[Tensor, "N"] | None = None) -> "Standardiser":
        """Mean and standard deviation per column, computed in float64; a weight counts how often its row occurs."""
        if weights is not None:
            array, weights = array[weights > 0], weights[weights > 0].detach().cpu().double()
        check_inputs(array)
        wide = array.detach().cpu().double()
        constant = wide.amax(0) == wide.amin(0)  # their std may be tiny instead of 0, by rounding
        mean, std = _moments(wide, weights)
        std = std.masked_fill(constant, 1)
        variance = std.square()
        usable = mean.isfinite() & variance.isfinite() & (variance > 0)
        if not usable.all():
            column = int((~usable).nonzero()[0])
            raise ValueError(
                f"numbers must have a variance that float64 can hold, but those of column {column} lie between "
                f"{float(wide[:, column].min()):g} and {float(wide[:, column].max()):g}; give them in another unit"
            )
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    def shared(self, array: Float[Tensor, "N D"], groups: Sequence[int]) -> "Standardiser":
        """With one std per group of several features, the root of their summed variances: a group has variance 1.

        The one-hot columns of a category then lie equally far from each other, rare ones too, and count together as
        one number does.
        """
        own = array.detach().cpu().double().var(0, correction=0)
        places = torch.as_tensor(groups)
        total = torch.zeros(len(own), dtype=own.dtype).index_add_(0, places, own)[places].sqrt()
        several = torch.bincount(places)[places] > 1
        std = torch.where(several & (total > 0), total, torch.tensor(self.std, dtype=own.dtype))
        return Standardiser(self.mean, tuple(std.tolist()))

    def apply(self, array: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """(x − mean) / std, in the dtype and on the device of x."""
        mean, std = self._like(array)
        return (array - mean) / std

    def undo(self, array: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """std · z + mean: the inverse of `apply`, up to rounding."""
        mean, std = self._like(array)
        return array * std + mean

    def undo_std(self, array: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """std · z_std: for standard deviations, to which no mean is added."""
        return array * self._like(array)[1]

    def to_json(self) -> dict[str, list[float]]:
        """Mean and std as lists; `from_json` is the exact inverse."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_json(cls, values: Mapping[str, Sequence[float]]) -> "Standardiser":
        """The standardiser that `to_json` described."""
        return cls(tuple(values["mean"]), tuple(values["std"]))

    def _like(self, array: Tensor) -> tuple[Tensor, Tensor]:
        if array.shape[-1:] != (len(self.mean),):
            raise ValueError(
                f"the last axis must have the {len(self.mean)} features that were fitted, but the shape is "
                f"{tuple(array.shape)}; choose the same columns as for fit"
            )
        return array.new_tensor(self.mean), array.new_tensor(self.std)


def _moments(
    array: Float[Tensor, "N D"], weights: Float[Tensor, "N"] | None
) -> tuple[Float[Tensor, "D"], Float[Tensor, "D"]]:
    if weights is None:
        return array.mean(0), array.std(0, correction=0)
    share = weights / weights.sum()
    mean = share @ array
    return mean, (share @ (array - mean).square()).sqrt()
