"""⑦ What a trained ensemble says of new inputs: as one Gaussian process, or as a plain mixture of members."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from degp.ensemble import Ensemble
from degp.gaussian import Coefficients
from degp.likelihoods import Likelihood
from degp.posterior import Nugget, PointwiseAverage, posterior
from degp.uncertainty import Predictive


def predict(
    ensemble: Ensemble,
    inputs: Shaped[Tensor, "N ..."],
    likelihood: Likelihood,
    *,
    diagonal: Nugget | float = PointwiseAverage(),
    coefficients: Coefficients | None = None,
    num_draws: int = 1000,
    batch_size: int = 4096,
    generator: torch.Generator | None = None,
) -> Predictive:
    """The prediction of the ensemble read as one Gaussian process.        theory/prediction.md (1), (2)

    Args:
        diagonal: λ or its rule; by default each point's own, so that a prediction does not depend on its company.
        coefficients: what observations after training have taught, from `LowRankGaussian.coefficients`.
        num_draws: draws of the function for likelihoods whose prediction has no closed form.
        batch_size: points that the networks see at once.
    """
    q = posterior(evaluate(ensemble, inputs, batch_size=batch_size), diagonal=diagonal)
    if coefficients is not None:
        q = q.updated(coefficients)
    with torch.no_grad():
        return likelihood.predictive(q, num_draws=num_draws, generator=generator)


def predict_mixture(
    ensemble: Ensemble, inputs: Shaped[Tensor, "N ..."], likelihood: Likelihood, *, batch_size: int = 4096
) -> Predictive:
    """The prediction of a plain deep ensemble: the members averaged, each as likely.        theory/prediction.md (4)"""
    with torch.no_grad():
        return likelihood.mixture(evaluate(ensemble, inputs, batch_size=batch_size))


@torch.no_grad()
def evaluate(ensemble: Ensemble, inputs: Shaped[Tensor, "N ..."], *, batch_size: int = 4096) -> Float[Tensor, "M N C"]:
    """The members' outputs in evaluation mode, `batch_size` points at a time; the ensemble's mode is put back."""
    if not len(inputs):
        raise ValueError("there is nothing to predict: inputs have no rows")
    modes = [(module, module.training) for module in ensemble.modules()]  # a frozen backbone may have its own
    ensemble.eval()
    try:
        return torch.cat([ensemble(piece) for piece in inputs.split(batch_size)], dim=1)
    finally:
        for module, training in modes:
            module.training = training
