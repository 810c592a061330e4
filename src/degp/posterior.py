"""③ The ensemble's outputs as one Gaussian: their mean, their deviations, and a small diagonal λ."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from degp.gaussian import LowRankGaussian

__all__ = ["AverageEigenvalue", "Nugget", "PointwiseAverage", "ensemble_posterior", "moments", "single_precision"]


def _require_positive(epsilon: float) -> None:
    if not epsilon > 0:
        raise ValueError(f"epsilon is a share of the average variance and must be positive, but it is {epsilon}")


@runtime_checkable
class Nugget(Protocol):
    """A rule for λ, which makes the covariance regular: from the deviations A to one value or one per entry.

    Example:
        >>> largest: Nugget = lambda deviations: 0.1 * deviations.square().sum(0).max()
        >>> ensemble_posterior(torch.tensor([[[0.0]], [[2.0]]]), diagonal=largest).variance()
        tensor([[1.1000]])
    """

    def __call__(self, deviations: Float[Tensor, "M N C"]) -> Float[Tensor, "N C"] | Float[Tensor, ""]: ...


@dataclass(frozen=True)
class AverageEigenvalue:
    """λ = ε · tr(AᵀA) / NC: a share of the central covariance's average eigenvalue.        theory/posterior.md (3)

    A constant for back-propagation: if gradients flowed through it, −NC log λ would dominate the loss and inflate the
    variance.

    Example:
        >>> AverageEigenvalue(0.05)(torch.ones(2, 3, 1))
        tensor(0.1000)
    """

    epsilon: float = 0.05

    def __post_init__(self) -> None:
        _require_positive(self.epsilon)

    def __call__(self, deviations: Float[Tensor, "M N C"]) -> Float[Tensor, ""]:
        return self.epsilon * deviations.detach().square().sum(0).mean()


@dataclass(frozen=True)
class PointwiseAverage:
    """λ(x) = ε · tr k(x, x) / C: the same share, per point.

    For prediction, which must be independent of the other points of a call.

    Example:
        >>> PointwiseAverage(0.05)(torch.ones(2, 3, 1)).shape
        torch.Size([3, 1])
    """

    epsilon: float = 0.05

    def __post_init__(self) -> None:
        _require_positive(self.epsilon)

    def __call__(self, deviations: Float[Tensor, "M N C"]) -> Float[Tensor, "N C"]:
        variance = deviations.detach().square().sum(0)
        return self.epsilon * variance.mean(1, keepdim=True).expand_as(variance)


def ensemble_posterior(
    outputs: Float[Tensor, "M N C"], *, diagonal: Nugget | float = AverageEigenvalue()
) -> LowRankGaussian:
    """q(f) = N(m, AᵀA + λI) on the N points of the members' outputs g₁ … g_M.        theory/posterior.md (1)–(4)

    m = (1/M) Σᵢ gᵢ,   Aᵢ = (gᵢ − m) / √M,   so that AᵀA is the members' empirical covariance

    Args:
        outputs: the members' outputs on the same points.
        diagonal: λ itself, or a rule for it.

    Example:
        >>> q = ensemble_posterior(torch.randn(10, 4, 2))
        >>> q.shape
        (10, 4, 2)
    """
    M = len(outputs)
    if M < 2:
        raise ValueError(
            f"a covariance needs at least two members, but there is {M}; make the ensemble larger, "
            f"or train a single network with methods.de"
        )
    mean, deviations = moments(outputs)
    return LowRankGaussian(mean, deviations, diagonal(deviations) if callable(diagonal) else diagonal)


def moments(outputs: Float[Tensor, "M N C"]) -> tuple[Float[Tensor, "N C"], Float[Tensor, "M N C"]]:
    """m and A of the members' outputs, in `single_precision`.

    Example:
        >>> mean, deviations = moments(torch.randn(10, 4, 1))
        >>> deviations.sum(0).abs().max().item() < 1e-5
        True
    """
    outputs = single_precision(outputs)
    mean = outputs.mean(0)
    return mean, (outputs - mean) / math.sqrt(len(outputs))


def single_precision(outputs: Float[Tensor, "M N C"]) -> Float[Tensor, "M N C"]:
    """Outputs in float32 at least: half precision is for networks only, and would lose the deviations.

    Example:
        >>> single_precision(torch.zeros(10, 4, 1, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))
