"""Decision rules: from the members' outputs to one value per action; the agent takes the action of largest value."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from degp.methods import Method

__all__ = ["EpsilonGreedy", "Rule", "ThompsonSampling"]


@dataclass(frozen=True)
class ThompsonSampling:
    """A function drawn from the method's posterior.        theory/decisions.md (3)

    Example:
        >>> ThompsonSampling()(ensemble(data.inputs), method, torch.Generator().manual_seed(0)).shape
        torch.Size([24, 1])
    """

    def __call__(
        self, outputs: Float[Tensor, "M N C"], method: Method, generator: torch.Generator
    ) -> Float[Tensor, "N C"]:
        return method.draw(outputs, generator=generator)


@dataclass(frozen=True)
class EpsilonGreedy:
    """The members' mean; with the given probability uniform noise instead, so that every action is equally likely.

    Example:
        >>> EpsilonGreedy(0.05).probability
        0.05
    """

    probability: float = 0.05

    def __call__(
        self, outputs: Float[Tensor, "M N C"], method: Method, generator: torch.Generator
    ) -> Float[Tensor, "N C"]:
        M, N, C = outputs.shape
        uniform, noise = torch.rand(N, 1 + C, device=outputs.device, generator=generator).tensor_split([1], dim=1)
        return torch.where(uniform < self.probability, noise, outputs.mean(0))


Rule = ThompsonSampling | EpsilonGreedy
