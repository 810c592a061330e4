"""The weights of an ensemble in parts, as priors over weights see them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from degp.runtime.execution import Tensors

__all__ = ["HasParts", "Part"]


@dataclass(frozen=True)
class Part:
    """Some of an ensemble's weights: stacked members, a single member, or the shared backbone.

    Attributes:
        architecture: a module whose parameters have the names and shapes of one member; it has no values.
        parameters: the weights by name, with the member axis in front where `members` is not None.
        members: how many are stacked in `parameters`, if any.
        shared_by: how many members use these weights; only this rank's own, if members are distributed across ranks.
        rows: which of all members are stacked here.

    Example:
        >>> part = ensemble.parts()[0]
        >>> part.members, [tuple(weight.shape) for weight in part.parameters.values()]
        (3, [(3, 8, 2), (3, 8), (3, 1, 8), (3, 1)])
    """

    architecture: nn.Module
    parameters: Mapping[str, Tensor]
    members: int | None
    shared_by: int = 1
    rows: slice = field(default_factory=lambda: slice(None))

    def among(self, weights: Mapping[str, Tensor]) -> Tensors:
        """From weights for all members, such as anchors, those for the members of this part."""
        return {name: value if self.members is None else value[self.rows] for name, value in weights.items()}


@runtime_checkable
class HasParts(Protocol):
    """Anything with weights in parts: an ensemble, or some of its members; of a split one, this rank's own.

    Example:
        >>> def count_weights(some: HasParts) -> int:
        ...     return sum(weight.numel() for part in some.parts() for weight in part.parameters.values())
        >>> count_weights(ensemble)
        99
    """

    def parts(self) -> list[Part]: ...

    def total(self, own: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """A sum over all members, from the sum over this rank's parts; with the gradient of these parts."""
        ...
