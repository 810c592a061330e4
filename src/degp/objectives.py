"""④ What is minimised: DE, rDE, RMS and DE-GP, plain callables from an ensemble and a batch to a loss.

All are scaled so that each member sees a gradient of the same size: sums over members, means over the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from degp.ensemble import Ensemble, HasParts
from degp.execution import Beside
from degp.gaussian import KroneckerGaussian, LowRankGaussian, cholesky, inverse, kl_divergence
from degp.likelihoods import Likelihood
from degp.measurement import MeasurementSampler, no_points
from degp.posterior import AverageEigenvalue, posterior
from degp.priors.kernel import Prior, as_prior
from degp.priors.penalty import Penalty, WeightPenalty, draw_anchors, no_penalty
from degp.priors.weights import WeightPrior
from degp.typing import Batch, Loss


@runtime_checkable
class Objective(Protocol):
    """Anything that gives the loss of a batch; ours are `nn.Module`s, so that their parameters can be trained too."""

    @property
    def likelihood(self) -> Likelihood:
        """p(y | f), which knows what targets must look like."""
        ...

    def __call__(self, ensemble: Ensemble, batch: Batch, *, generator: torch.Generator | None = None) -> Loss: ...


@dataclass(frozen=True)
class Groundwork:
    """What of a step's loss no member has a part in: the extra points, and the prior on them and the data.

    Attributes:
        extra: the extra points.
        root: L with LLᵀ = K_p, the prior's covariance on the data and the extra points, with its jitter.
        inverse_root: L⁻¹.
    """

    extra: Shaped[Tensor, "K ..."]
    root: Float[Tensor, "N N"]
    inverse_root: Float[Tensor, "N N"]


@runtime_checkable
class WorksAhead(Protocol):
    """An objective whose groundwork for the next batch can be done while the members are busy with this one."""

    def groundwork(
        self, inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None
    ) -> Groundwork: ...

    def upon(
        self, groundwork: Groundwork, ensemble: Ensemble, batch: Batch, *, generator: torch.Generator | None = None
    ) -> Loss:
        """The loss; groundwork and this, one after the other with one generator, are the whole objective."""
        ...


def de(likelihood: Likelihood) -> "MemberwiseObjective":
    """Deep ensemble: Σᵢ −log p(y | gᵢ), each member by itself.        theory/objectives.md (1)"""
    return MemberwiseObjective(likelihood, no_penalty)


def rde(
    likelihood: Likelihood, weight_prior: WeightPrior = WeightPrior(), *, weight: float = 1.0
) -> "MemberwiseObjective":
    """Regularised deep ensemble: DE with a Gaussian prior over the weights (MAP).        theory/objectives.md (2)

    Args:
        weight: scale of the penalty; 1 is maximum a posteriori.
    """
    return MemberwiseObjective(likelihood, WeightPenalty(weight_prior, weight))


def rms(
    likelihood: Likelihood,
    ensemble: Ensemble,
    weight_prior: WeightPrior = WeightPrior(),
    *,
    weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> "MemberwiseObjective":
    """Randomised MAP sampling: rDE towards anchors drawn from the prior, one set a member.  theory/objectives.md (3)"""
    anchors = draw_anchors(weight_prior, ensemble, generator=generator)
    return MemberwiseObjective(likelihood, WeightPenalty(weight_prior, weight, anchors))


def degp(
    likelihood: Likelihood,
    prior: Prior | Callable[[Tensor, Tensor], Tensor],
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    measurement: MeasurementSampler = no_points,
    weight_prior: WeightPrior = WeightPrior(),
    epsilon: float = 0.05,
) -> "FunctionalObjective":
    """DE-GP: the ensemble as a Gaussian process, by functional variational inference; see `FunctionalObjective`."""
    return FunctionalObjective(
        likelihood,
        as_prior(prior),
        alpha=alpha,
        measurement=measurement,
        penalty=WeightPenalty(weight_prior, beta) if beta else no_penalty,
        epsilon=epsilon,
    )


class MemberwiseObjective(nn.Module):
    """(1/B) Σᵢ Σ_batch −log p(y | gᵢ(x)) + penalty: members that never meet.        theory/objectives.md (1)–(3)"""

    def __init__(self, likelihood: Likelihood, penalty: Penalty) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.penalty = penalty

    def forward(self, ensemble: Ensemble, batch: Batch, *, generator: torch.Generator | None = None) -> Loss:
        return self.of_outputs(ensemble(batch.inputs), ensemble, batch)

    def of_outputs(self, outputs: Float[Tensor, "M B C"], weights: HasParts, batch: Batch) -> Loss:
        """The loss from the members' outputs on the batch and their weights."""
        M, B, C = outputs.shape
        self.likelihood.check(batch.targets, C)
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))  # half precision is for networks only
        data = -self.likelihood.log_prob(outputs, batch.targets).sum() / M
        penalty = self.penalty(weights, batch.population).to(data)
        return Loss(M / B * data + penalty, {"data": data.detach() / B, "penalty": penalty.detach()})


class FunctionalObjective(nn.Module):
    """(M/B) [ −Σ_batch E_q log p(y | f) + α KL(q ‖ p on batch ∪ extra points) ] + β penalty.  theory/objectives.md (5)

    Args:
        likelihood: p(y | f).
        prior: p(f).
        alpha: α; 1 is the Bayesian weight for full batches, B/N for mini-batches of a set of N points.
        measurement: where the extra points come from.
        penalty: on the weights, β times the energy of a `WeightPrior`; none is β = 0.
        epsilon: λ and the prior's jitter, as shares of the mean variance of q and of p.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        prior: Prior,
        *,
        alpha: float = 1.0,
        measurement: MeasurementSampler = no_points,
        penalty: Penalty = no_penalty,
        epsilon: float = 0.05,
    ) -> None:
        super().__init__()
        if not alpha >= 0:
            raise ValueError(f"alpha weighs the divergence and must not be negative, but it is {alpha}")
        self.likelihood = likelihood
        self.prior = prior
        self.alpha = alpha
        self.measurement = measurement
        self.penalty = penalty
        self.nugget = AverageEigenvalue(epsilon)

    def forward(self, ensemble: Ensemble, batch: Batch, *, generator: torch.Generator | None = None) -> Loss:
        extra = self.measurement(batch.inputs, generator=generator)
        with Beside(batch.inputs) as work:
            groundwork = self._groundwork(batch.inputs, extra, generator)
        return self._upon(groundwork, ensemble, batch, work, generator)

    def groundwork(self, inputs: Shaped[Tensor, "B ..."], *, generator: torch.Generator | None = None) -> Groundwork:
        """What `upon` goes on from; nothing of the ensemble's is needed for it."""
        return self._groundwork(inputs, self.measurement(inputs, generator=generator), generator)

    def upon(
        self, groundwork: Groundwork, ensemble: Ensemble, batch: Batch, *, generator: torch.Generator | None = None
    ) -> Loss:
        """The loss of a batch whose groundwork has been done."""
        return self._upon(groundwork, ensemble, batch, Beside(batch.inputs), generator)

    def _groundwork(self, inputs: Tensor, extra: Tensor, generator: torch.Generator | None) -> Groundwork:
        root = self.prior_root(inputs, extra, generator=generator)
        return Groundwork(extra, root, inverse(root))

    def _upon(
        self,
        groundwork: Groundwork,
        ensemble: Ensemble,
        batch: Batch,
        work: Beside,
        generator: torch.Generator | None,
    ) -> Loss:
        q = posterior(members_on(ensemble, batch.inputs, groundwork.extra), diagonal=self.nugget)
        with work.taking(q.mean, q.deviations, q.diagonal, groundwork.root, groundwork.inverse_root):
            kl = kl_divergence(q, KroneckerGaussian(groundwork.root, q.shape[2], groundwork.inverse_root))
        data = self.data_term(q, batch, generator=generator)
        penalty = self.penalty(ensemble, batch.population)
        work.join(kl)
        return self.combined(data, kl, penalty, q.shape[0], len(batch))

    def prior_root(
        self,
        inputs: Shaped[Tensor, "B ..."],
        extra: Shaped[Tensor, "K ..."],
        *,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "N N"]:
        """L with LLᵀ = K_p, the prior's covariance on the data and the extra points, with its jitter."""
        points = torch.cat([inputs, extra]) if len(extra) else inputs
        return cholesky(self.prior.kernel(generator=generator)(points, points), jitter=self.nugget.epsilon)

    def of_posterior(
        self,
        q: LowRankGaussian,
        weights: HasParts,
        batch: Batch,
        kl: Float[Tensor, ""],
        *,
        generator: torch.Generator | None = None,
    ) -> Loss:
        """The loss from q on the batch and the extra points, the members' weights, and the divergence."""
        data, penalty = self.data_term(q, batch, generator=generator), self.penalty(weights, batch.population)
        return self.combined(data, kl, penalty, q.shape[0], len(batch))

    def data_term(
        self, q: LowRankGaussian, batch: Batch, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, ""]:
        """−Σ_batch E_q log p(y | f)."""
        (_, N, C), B = q.shape, len(batch)
        self.likelihood.check(batch.targets, C)
        on_batch = q if N == B else q.marginal(slice(B))
        return -self.likelihood.expected_log_prob(on_batch, batch.targets, generator=generator).sum()

    def combined(
        self, data: Float[Tensor, ""], kl: Float[Tensor, ""], penalty: Float[Tensor, ""], M: int, B: int
    ) -> Loss:
        """The loss from its terms."""
        kl, penalty = kl.to(data), penalty.to(data)
        terms = {"data": data.detach() / B, "kl": kl.detach(), "penalty": penalty.detach()}
        return Loss(M / B * (data + self.alpha * kl) + penalty, terms)


def members_on(
    ensemble: Ensemble, inputs: Shaped[Tensor, "B ..."], extra: Shaped[Tensor, "K ..."]
) -> Float[Tensor, "M N C"]:
    """The members on the data and on the extra points, which must not enter BatchNorm's statistics."""
    if not len(extra):
        return ensemble(inputs)
    has_statistics = any(True for _ in ensemble.buffers())
    if has_statistics or any(isinstance(module, _BatchNorm) for module in ensemble.modules()):
        return torch.cat([ensemble(inputs), ensemble.peek(extra)], dim=1)
    return ensemble(torch.cat([inputs, extra]))
