"""DE-GP: the ensemble as one Gaussian process, trained by functional variational inference."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble import HasParts
from degp.gaussian import Coefficients, KroneckerGaussian, LowRankGaussian, kl_divergence
from degp.likelihoods import Likelihood
from degp.measurement import BatchAndMeasurement, Domain, MeasurementSampler, no_points, points_of
from degp.methods.conditioning import conditioned, process_predictive
from degp.methods.contract import Prepared, require_likelihood
from degp.points import Inputs
from degp.posterior import AverageEigenvalue, PointwiseAverage, ensemble_posterior, moments, single_precision
from degp.predictive import Predictive
from degp.priors.kernel import Prior, as_prior
from degp.priors.penalty import Penalty, WeightPenalty, no_penalty
from degp.priors.weights import WeightPrior
from degp.roots import cholesky, inverse
from degp.runtime.streams import SideStream
from degp.typing import Batch, Loss

__all__ = ["DEGP", "degp"]


class DEGP(nn.Module):
    """The ensemble as one Gaussian process, trained by functional variational inference.  theory/objectives.md (5)

    (M/B) [ −Σ_batch ω E_q log p(y | f) + α (B/N) KL(q ‖ p on batch ∪ measurement points) ] + β penalty

    Args:
        likelihood: p(y | f).
        prior: p(f).
        alpha: α, in units of Bayes' weight B/N: 1 is Bayes' rule at any batch size.
        measurement: where the measurement points come from.
        domain: the points of the divergence: the batch and the measurement points, or these alone.
        penalty: on the weights, β times the energy of a `WeightPrior`; none is β = 0.
        epsilon: ε, λ and the prior's jitter as shares of the mean variance of q and of p.

    Example:
        >>> penalty = WeightPenalty(WeightPrior(), 0.1)
        >>> functional = DEGP(Gaussian(variance=0.1), NNGP(depth=2), alpha=0.5, penalty=penalty)
        >>> batch_loss(ensemble, batch, functional).total.backward()
        >>> functional.predictive(ensemble(data.inputs)).mean.shape
        torch.Size([24, 1])
    """

    def __init__(
        self,
        likelihood: Likelihood,
        prior: Prior,
        *,
        alpha: float = 1.0,
        measurement: MeasurementSampler = no_points,
        domain: Domain = BatchAndMeasurement(),
        penalty: Penalty = no_penalty,
        epsilon: float = 0.05,
    ) -> None:
        super().__init__()
        if not alpha >= 0:
            raise ValueError(f"alpha is the weight of the divergence and must not be negative, but it is {alpha}")
        self.likelihood = require_likelihood(likelihood)
        self.prior = prior
        self.alpha = alpha
        self.measurement = measurement
        self.domain = domain
        self.penalty = penalty
        self.nugget = AverageEigenvalue(epsilon)

    @property
    def epsilon(self) -> float:
        """ε, the same in training and at new points."""
        return self.nugget.epsilon

    def prepare(self, inputs: Inputs, *, generator: torch.Generator | None = None) -> Prepared:
        """Measurement points, and L, L⁻¹ with LLᵀ = K_p + jitter on the points of the divergence."""
        measurement = self.measurement(inputs, generator=generator)
        points = points_of(self.domain, inputs, measurement)
        gram_root = cholesky(self.prior.kernel(generator=generator)(points, points), jitter=self.epsilon)
        return Prepared(measurement, gram_root, inverse(gram_root))

    def loss(
        self,
        outputs: Float[Tensor, "M N C"],
        weights: HasParts,
        batch: Batch,
        prepared: Prepared,
        *,
        generator: torch.Generator | None = None,
    ) -> Loss:
        (M, _, C), B, N = outputs.shape, len(batch), batch.population
        self.likelihood.check(batch.targets, C)
        q = ensemble_posterior(outputs, diagonal=self.nugget)
        p = KroneckerGaussian(prepared.gram_root, C, prepared.gram_root_inverse)

        side = SideStream(outputs)
        with side.using(q.mean, q.deviations, q.diagonal, prepared.gram_root, prepared.gram_root_inverse):
            kl = kl_divergence(_on(q, self.domain.rows(B)), p)
        expected = self.likelihood.expected_log_prob(_on(q, slice(B)), batch.targets, generator=generator)
        data = -batch.weigh(expected).sum()
        penalty = self.penalty(weights, N)
        side.join(kl)

        kl, penalty = kl.to(data), penalty.to(data)
        total = M / B * (data + self.alpha * B / N * kl) + penalty
        return Loss(total, {"data": data.detach() / B, "kl": kl.detach(), "penalty": penalty.detach()})

    def posterior(self, outputs: Float[Tensor, "M N C"], coefficients: Coefficients | None = None) -> LowRankGaussian:
        """N(m, AᵀA + diag λ(x)) with each point's own λ(x) = ε tr k(x, x) / C; of a single member, this member."""
        mean, deviations = moments(outputs)
        q = LowRankGaussian(mean, deviations, PointwiseAverage(self.epsilon)(deviations))
        return conditioned(q, coefficients)

    def predictive(
        self,
        outputs: Float[Tensor, "M N C"],
        *,
        coefficients: Coefficients | None = None,
        num_draws: int = 1000,
        generator: torch.Generator | None = None,
    ) -> Predictive:
        """E_q p(y | f(x)).        theory/prediction.md (1), (2)

        A single member has no covariance; its predictive distribution is p(y | g₁(x)).
        """
        if len(outputs) == 1:
            return self.likelihood.mixture(single_precision(outputs))
        return process_predictive(self, outputs, coefficients, num_draws, generator)

    def draw(
        self, outputs: Float[Tensor, "M N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N C"]:
        """A joint draw of q(f)."""
        return self.posterior(outputs).sample(1, generator=generator)[0]


def degp(
    likelihood: Likelihood,
    prior: Prior | Callable[[Tensor, Tensor], Tensor],
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    measurement: MeasurementSampler = no_points,
    domain: Domain = BatchAndMeasurement(),
    weight_prior: WeightPrior = WeightPrior(),
    epsilon: float = 0.05,
) -> DEGP:
    """DE-GP, with a weight penalty of scale `beta`; the other arguments as in `DEGP`.

    Example:
        >>> functional = degp(Gaussian(variance=0.1), NNGP(depth=2), measurement=UniformBox(0.0, 1.0, 8), epsilon=1e-3)
        >>> sorted(batch_loss(ensemble, batch, functional).terms)
        ['data', 'kl', 'penalty']
    """
    return DEGP(
        likelihood,
        as_prior(prior),
        alpha=alpha,
        measurement=measurement,
        domain=domain,
        penalty=WeightPenalty(weight_prior, beta) if beta else no_penalty,
        epsilon=epsilon,
    )


def _on(q: LowRankGaussian, rows: slice) -> LowRankGaussian:
    """q on some of its points; itself where they are all."""
    num_points = q.shape[1]
    return q if len(range(num_points)[rows]) == num_points else q.marginal(rows)
