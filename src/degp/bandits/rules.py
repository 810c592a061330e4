"""From the members' outputs to the values that a decision maximises: one guess at the function, or its mean."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from degp.posterior import PointwiseAverage, posterior

Rule = Callable[[Float[Tensor, "M N C"], torch.Generator], Float[Tensor, "N C"]]


@dataclass(frozen=True)
class ProcessDraw:
    """f ~ N(m(x), k(x, x)): Thompson sampling from the Gaussian process, a draw a context.  theory/decisions.md (3)"""

    epsilon: float = 0.05

    def __call__(self, outputs: Float[Tensor, "M N C"], generator: torch.Generator) -> Float[Tensor, "N C"]:
        q = posterior(outputs, diagonal=PointwiseAverage(self.epsilon))
        return q.sample_marginals(1, generator=generator)[0]


def random_member(outputs: Float[Tensor, "M N C"], generator: torch.Generator) -> Float[Tensor, "N C"]:
    """One of the members for each context, all equally likely."""
    M, N, C = outputs.shape
    members = torch.randint(M, (N,), device=outputs.device, generator=generator)
    return outputs[members, torch.arange(N, device=outputs.device)]


@dataclass(frozen=True)
class EpsilonGreedy:
    """The members' mean; with a small probability random values instead, so that any action may come out best."""

    probability: float = 0.05

    def __call__(self, outputs: Float[Tensor, "M N C"], generator: torch.Generator) -> Float[Tensor, "N C"]:
        M, N, C = outputs.shape
        chance, noise = torch.rand(N, 1 + C, device=outputs.device, generator=generator).tensor_split([1], dim=1)
        return torch.where(chance < self.probability, noise, outputs.mean(0))
