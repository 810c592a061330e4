"""Features of mean 0 and standard deviation 1, and the way back; learnt from the training rows alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from degp.data.arrays import check_inputs


@dataclass(frozen=True)
class Standardiser:
    """z = (x − mean) / std for each feature, where a feature that is constant has std 1 and so becomes 0.

        scale = Standardiser.fit(train.inputs)
        scale.apply(train.inputs), scale.apply(test.inputs)

    The standard deviation is that of the rows themselves, with 1/N.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not all(std > 0 for std in self.std):
            raise ValueError(
                f"there must be one mean and one positive std for each feature, but mean is {self.mean} and std is "
                f"{self.std}; learn both with Standardiser.fit"
            )

    @classmethod
    def fit(cls, array: Float[Tensor, "N D"]) -> "Standardiser":
        """Mean and standard deviation of each column, computed in float64."""
        check_inputs(array)
        wide = array.detach().cpu().double()
        constant = wide.amax(0) == wide.amin(0)  # rounding may give them a std that is tiny and not 0
        std = wide.std(0, correction=0).masked_fill(constant, 1)
        return cls(tuple(wide.mean(0).tolist()), tuple(std.tolist()))

    def apply(self, array: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """(x − mean) / std, in the type and on the device of x."""
        mean, std = self._like(array)
        return (array - mean) / std

    def undo(self, array: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """std · z + mean: what `apply` came from, up to rounding."""
        mean, std = self._like(array)
        return array * std + mean

    def undo_std(self, array: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """std · z_std: a spread, such as a predicted standard deviation, which has no mean to add."""
        return array * self._like(array)[1]

    def to_json(self) -> dict[str, list[float]]:
        """Mean and std as lists, from which `from_json` makes the same standardiser, exactly."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_json(cls, values: Mapping[str, Sequence[float]]) -> "Standardiser":
        """The standardiser that `to_json` wrote down."""
        return cls(tuple(values["mean"]), tuple(values["std"]))

    def _like(self, array: Tensor) -> tuple[Tensor, Tensor]:
        if array.shape[-1:] != (len(self.mean),):
            raise ValueError(
                f"the last axis must have the {len(self.mean)} features that were fitted, but the shape is "
                f"{tuple(array.shape)}; choose the same columns as for fit"
            )
        return array.new_tensor(self.mean), array.new_tensor(self.std)
