"""Piecewise-linear embeddings of a table's numbers: networks see where a number lies, not only how large it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Embedding"]

MOST_PIECES, ALL_PIECES = 16, 256  # of one feature, and of all
FEWEST_PIECES = 3  # one or two would repeat the feature


@dataclass(frozen=True)
class Embedding:
    """x ↦ (x₁, …, x_D, t₁, …, t_P): the features, then pieces t = clip((x_d − a) / (b − a), 0, 1).

    The pieces of a feature join quantiles of the training rows. A function that is linear in them is piecewise linear
    in the feature, so thresholds and plateaus need no depth (Gorishniy et al., 2022, arXiv:2203.05556). Beyond the
    training rows pieces are constant, and x alone extrapolates.

    Attributes:
        num_features: D.
        places: d of each piece.
        starts: a of each piece.
        ends: b of each piece.
    """

    num_features: int
    places: tuple[int, ...] = ()
    starts: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()

    @classmethod
    def fit(cls, features: Float[Tensor, "N D"]) -> "Embedding":
        """Up to 16 pieces per feature, and none of a feature with too few distinct values."""
        D = features.shape[1]
        count = min(MOST_PIECES, ALL_PIECES // D)
        pieces: list[tuple[int, float, float]] = []
        for d in range(D if count >= FEWEST_PIECES else 0):
            edges = _edges(features[:, d].detach().cpu().double(), count)
            if len(edges) > FEWEST_PIECES:
                pieces += [(d, start, end) for start, end in pairwise(edges)]
        return cls(D, *(tuple(column) for column in zip(*pieces, strict=True))) if pieces else cls(D)

    def apply(self, features: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows E"]:
        """The E = D + P features and pieces, in the dtype and on the device of the features."""
        if features.shape[-1] != self.num_features:
            raise ValueError(
                f"the last axis must have the {self.num_features} features that were fitted, but the shape is "
                f"{tuple(features.shape)}; choose the same columns as for fit"
            )
        if not self.places:
            return features
        start, end = features.new_tensor(self.starts), features.new_tensor(self.ends)
        pieces = (features[..., list(self.places)] - start) / (end - start)
        return torch.cat([features, pieces.clamp(0.0, 1.0)], -1)

    def groups(self, own: Sequence[int]) -> tuple[int, ...]:
        """The group of each output: those of the features, which are given, then one per embedded feature."""
        first = max(own, default=-1) + 1
        numbers = {place: first + number for number, place in enumerate(dict.fromkeys(self.places))}
        return (*own, *(numbers[place] for place in self.places))

    @property
    def sources(self) -> tuple[int, ...]:
        """The feature that each output comes from."""
        return (*range(self.num_features), *self.places)


def _edges(values: Float[Tensor, "N"], count: int) -> list[float]:
    """All distinct values, or that many quantiles and one."""
    distinct = values.unique()
    if len(distinct) > count + 1:
        distinct = torch.quantile(values, torch.linspace(0, 1, count + 1, dtype=values.dtype)).unique()
    return distinct.tolist()
