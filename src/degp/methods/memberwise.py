"""Members that train independently: DE, rDE and RMS."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble import Ensemble, HasParts
from degp.gaussian import Coefficients, LowRankGaussian
from degp.likelihoods import Likelihood
from degp.methods.conditioning import conditioned, process_predictive
from degp.methods.contract import Prepared, require_likelihood
from degp.points import Inputs
from degp.posterior import moments, single_precision
from degp.predictive import Predictive
from degp.priors.penalty import Penalty, WeightPenalty, draw_anchors, no_penalty
from degp.priors.weights import WeightPrior
from degp.typing import Batch, Loss

__all__ = ["Memberwise", "de", "rde", "rms"]


class Memberwise(nn.Module):
    """(1/B) Σᵢ Σ_batch −ω log p(y | gᵢ(x)) + penalty: members train independently.        theory/objectives.md (1)–(3)

    The weight ω of a point is 1 unless the batch has `weights`.
    New targets follow the mixture of the members, each with probability 1/M.        theory/prediction.md (4)

    Example:
        >>> independent = Memberwise(Gaussian(variance=0.1), WeightPenalty(WeightPrior(), 0.5))
        >>> batch_loss(ensemble, batch, independent).total.backward()
        >>> independent.predictive(ensemble(data.inputs)).mean.shape
        torch.Size([24, 1])
    """

    epsilon = 0.0

    def __init__(self, likelihood: Likelihood, penalty: Penalty) -> None:
        super().__init__()
        self.likelihood = require_likelihood(likelihood)
        self.penalty = penalty

    def prepare(self, inputs: Inputs, *, generator: torch.Generator | None = None) -> Prepared:
        return Prepared.empty(inputs)

    def loss(
        self,
        outputs: Float[Tensor, "M N C"],
        weights: HasParts,
        batch: Batch,
        prepared: Prepared,
        *,
        generator: torch.Generator | None = None,
    ) -> Loss:
        (M, _, C), B = outputs.shape, len(batch)
        self.likelihood.check(batch.targets, C)
        data = -batch.weigh(self.likelihood.log_prob(single_precision(outputs), batch.targets)).sum() / M
        penalty = self.penalty(weights, batch.population).to(data)
        return Loss(M / B * data + penalty, {"data": data.detach() / B, "penalty": penalty.detach()})

    def posterior(self, outputs: Float[Tensor, "M N C"], coefficients: Coefficients | None = None) -> LowRankGaussian:
        """The Gaussian with the mixture's mean and covariance."""
        return conditioned(LowRankGaussian(*moments(outputs), 0.0), coefficients)

    def predictive(
        self,
        outputs: Float[Tensor, "M N C"],
        *,
        coefficients: Coefficients | None = None,
        num_draws: int = 1000,
        generator: torch.Generator | None = None,
    ) -> Predictive:
        """The mixture; after observations, the predictive distribution of the Gaussian with its moments."""
        if coefficients is None:
            return self.likelihood.mixture(single_precision(outputs))
        return process_predictive(self, outputs, coefficients, num_draws, generator)

    def draw(
        self, outputs: Float[Tensor, "M N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N C"]:
        """A member chosen at random."""
        return outputs[int(torch.randint(len(outputs), (), generator=generator, device=outputs.device))]


def de(likelihood: Likelihood) -> Memberwise:
    """Deep ensemble: Σᵢ −log p(y | gᵢ), members trained independently.        theory/objectives.md (1)

    Example:
        >>> trained = de(Gaussian(variance=0.1))
        >>> batch_loss(ensemble, batch, trained).terms.keys()
        dict_keys(['data', 'penalty'])
    """
    return Memberwise(likelihood, no_penalty)


def rde(likelihood: Likelihood, weight_prior: WeightPrior = WeightPrior(), *, weight: float = 1.0) -> Memberwise:
    """Regularised deep ensemble: DE with a Gaussian prior over the weights (MAP).        theory/objectives.md (2)

    Args:
        weight: scale of the penalty; 1 is maximum a posteriori.

    Example:
        >>> sorted(batch_loss(ensemble, batch, rde(Gaussian(variance=0.1))).terms)
        ['data', 'penalty']
    """
    return Memberwise(likelihood, WeightPenalty(weight_prior, weight))


def rms(
    likelihood: Likelihood,
    ensemble: Ensemble,
    weight_prior: WeightPrior = WeightPrior(),
    *,
    weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Memberwise:
    """Randomised MAP sampling: rDE towards one anchor per member, drawn from the prior.  theory/objectives.md (3)

    Example:
        >>> anchored = rms(Gaussian(variance=0.1), ensemble, generator=torch.Generator().manual_seed(0))
    """
    anchors = draw_anchors(weight_prior, ensemble, generator=generator)
    return Memberwise(likelihood, WeightPenalty(weight_prior, weight, anchors))
