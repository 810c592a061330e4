"""Posteriors and predictive distributions after observations that were made after training."""

import torch
from jaxtyping import Float
from torch import Tensor

from degp.gaussian import Coefficients, LowRankGaussian
from degp.methods.contract import Method
from degp.predictive import Predictive, RegressionPredictive

__all__ = ["conditioned", "process_predictive"]


def conditioned(q: LowRankGaussian, coefficients: Coefficients | None) -> LowRankGaussian:
    """q after the observations that the coefficients summarise, if there are any."""
    return q if coefficients is None else q.updated(coefficients)


def process_predictive(
    method: Method,
    outputs: Float[Tensor, "M N C"],
    coefficients: Coefficients | None,
    num_draws: int,
    generator: torch.Generator | None,
) -> Predictive:
    """E_q p(y | f(x)); observations change what is known of the function, and not the noise that members predict."""
    q = method.posterior(outputs, coefficients)
    predictive = method.likelihood.predictive(q, num_draws=num_draws, generator=generator)
    if coefficients is None or not isinstance(predictive, RegressionPredictive):
        return predictive
    before = method.likelihood.predictive(method.posterior(outputs))
    assert isinstance(before, RegressionPredictive)
    return RegressionPredictive(predictive.posterior, before.aleatoric)
