"""Weight penalties: a prior over weights as a term of the loss, towards zero or towards one anchor per member."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble import Ensemble, HasParts, Part
from degp.priors.weights import WeightPrior, Weights, as_buffers, as_weights

__all__ = ["Penalty", "WeightPenalty", "draw_anchors", "no_penalty"]

Penalty = Callable[[HasParts, int], Float[Tensor, ""]]


def no_penalty(weights: HasParts, population: int) -> Float[Tensor, ""]:
    """No prior over weights.

    Example:
        >>> no_penalty(ensemble, population=100)
        tensor(0.)
    """
    like = next(iter(weights.parts()[0].parameters.values()), torch.empty(0))
    return like.new_zeros(())


class WeightPenalty(nn.Module):
    """(weight / N) Σᵢ ½ Σ_w (wᵢ − aᵢ)² / σ₀², per data point of a population of N.        theory/objectives.md (2)

    Args:
        prior: σ₀² of each weight.
        weight: scale; 1 is the prior itself.
        anchors: a, one set per part of the ensemble, from `draw_anchors`; without them a = 0. Every rank of a split
            ensemble holds those of all members.

    Example:
        >>> float(WeightPenalty(WeightPrior())(ensemble, population=100)) > 0
        True
    """

    def __init__(self, prior: WeightPrior, weight: float = 1.0, anchors: Sequence[Weights] = ()) -> None:
        super().__init__()
        if not weight >= 0:
            raise ValueError(f"the weight of a penalty must not be negative, but it is {weight}")
        self.prior = prior
        self.weight = weight
        self.anchors = nn.ModuleList(as_buffers(part) for part in anchors)

    def forward(self, weights: HasParts, population: int) -> Float[Tensor, ""]:
        parts = weights.parts()
        anchors = [as_weights(part) for part in self.anchors] or [{}] * len(parts)
        energies = [
            part.shared_by * self.prior.energy(part.architecture, part.parameters, part.among(towards))
            for part, towards in zip(parts, anchors, strict=True)
        ]
        return weights.total(self.weight / population * torch.stack(energies).sum())


def draw_anchors(prior: WeightPrior, ensemble: Ensemble, *, generator: torch.Generator | None = None) -> list[Weights]:
    """One draw of the weights per member, independent of its initial weights; one for a backbone.

    Example:
        >>> len(draw_anchors(WeightPrior(), ensemble))
        1
    """
    return [_draw(prior, part, len(ensemble), generator) for part in ensemble.parts()]


def _draw(prior: WeightPrior, part: Part, members: int, generator: torch.Generator | None) -> Weights:
    like = next((parameter.detach() for parameter in part.parameters.values()), None)
    stacked = part.members is not None
    drawn = prior.draw(
        part.architecture, members if stacked else 1, names=part.parameters, like=like, generator=generator
    )
    return drawn if stacked else {name: value[0] for name, value in drawn.items()}
