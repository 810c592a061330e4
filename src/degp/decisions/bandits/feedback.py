"""Partly observed targets, as in a bandit, where only the reward of the chosen action is seen."""

import math

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from degp.gaussian import LowRankGaussian
from degp.likelihoods import LOG_2PI
from degp.posterior import moments
from degp.predictive import RegressionPredictive

__all__ = ["PartialGaussian", "observations"]


class PartialGaussian(nn.Module):
    """y_c ~ N(f_c, σ²) for the observed outputs c of a point; NaN marks the others.        theory/decisions.md (1)

    Unobserved outputs have no data term: there the loss has the divergence from the prior alone.

    Args:
        variance: σ².

    Example:
        >>> PartialGaussian(0.1).log_prob(torch.zeros(1, 2, 2), torch.tensor([[1.0, torch.nan], [torch.nan, 0.0]]))
        tensor([[-4.7676,  0.2324]])
    """

    def __init__(self, variance: float) -> None:
        super().__init__()
        if not variance > 0:
            raise ValueError(f"variance must be positive, but it is {variance}")
        self.variance: Tensor
        self.register_buffer("variance", torch.tensor(variance, dtype=torch.float64))

    def check(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        if not targets.is_floating_point() or targets.ndim != 2 or targets.shape[1] != num_outputs:
            raise ValueError(
                f"partly observed targets must be floating-point rows (N, {num_outputs}), NaN where unobserved, "
                f"but they are {targets.dtype} of shape {tuple(targets.shape)}"
            )

    def check_values(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        if bool(targets.isinf().any()):
            raise ValueError("observed targets must be finite, but some are infinite; drop these rows")

    def log_prob(self, outputs: Float[Tensor, "M N C"], targets: Float[Tensor, "N C"]) -> Float[Tensor, "M N"]:
        observed = ~targets.isnan()
        return self._log_density(_residuals(targets, outputs, observed).square(), observed)

    def expected_log_prob(
        self, q: LowRankGaussian, targets: Float[Tensor, "N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N"]:
        """−½ Σ_{c observed} [log 2πσ² + ((y_c − m_c)² + k(x, x)_cc) / σ²]."""
        observed = ~targets.isnan()
        return self._log_density(_residuals(targets, q.mean, observed).square() + q.variance(), observed)

    @torch.no_grad()
    def widen(self, factor: float) -> None:
        """Multiplies σ² by a factor, in place."""
        self.variance.mul_(factor)

    def predictive(
        self, q: LowRankGaussian, *, num_draws: int = 1000, generator: torch.Generator | None = None
    ) -> RegressionPredictive:
        """N(m, k(x, x) + σ²) for every output, in closed form."""
        return RegressionPredictive(q, self.variance.to(q.mean).expand_as(q.mean))

    def mixture(self, outputs: Float[Tensor, "M N C"]) -> RegressionPredictive:
        """Mean and variance of the mixture of N(gᵢ, σ²)."""
        return self.predictive(LowRankGaussian(*moments(outputs), 0.0))

    def _log_density(self, squares: Float[Tensor, "*M N C"], observed: Bool[Tensor, "N C"]) -> Float[Tensor, "*M N"]:
        variance = self.variance.to(squares)
        return -0.5 * ((LOG_2PI + variance.log() + squares / variance) * observed).sum(-1)


def _residuals(
    targets: Float[Tensor, "N C"], functions: Float[Tensor, "*M N C"], observed: Bool[Tensor, "N C"]
) -> Float[Tensor, "*M N C"]:
    """y − f; 0 with zero gradient for unobserved outputs."""
    return torch.where(observed, targets - functions, targets.new_zeros(()))


def observations(actions: Shaped[Tensor, "B"], rewards: Float[Tensor, "B"], num_actions: int) -> Float[Tensor, "B C"]:
    """Targets with each round's reward at its action and NaN elsewhere."""
    targets = rewards.new_full((len(rewards), num_actions), math.nan)
    return targets.scatter_(1, actions[:, None], rewards[:, None])
