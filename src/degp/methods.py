"""④ Methods: DE, rDE, RMS and DE-GP, each a value that knows its loss and its predictive distribution.

    prepared = method.prepare(batch.inputs)                               # what needs no member
    outputs = ensemble.joint_outputs(batch.inputs, prepared.measurement)  # (M, N, C)
    loss = method.loss(outputs, ensemble, batch, prepared)
    predictive = method.predictive(ensemble(new_inputs))

`fit` and `predict` take the same value. Losses are sums over members and means over the batch, so that every member
sees a gradient of the same size whatever the method.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble import Ensemble, HasParts
from degp.gaussian import Coefficients, KroneckerGaussian, LowRankGaussian, cholesky, inverse, kl_divergence
from degp.likelihoods import Likelihood
from degp.measurement import BatchAndMeasurement, Domain, MeasurementSampler, no_points
from degp.points import Inputs, device_of, take_points
from degp.posterior import AverageEigenvalue, PointwiseAverage, ensemble_posterior, moments
from degp.predictive import Predictive, RegressionPredictive
from degp.priors.kernel import Prior, as_prior
from degp.priors.penalty import Penalty, WeightPenalty, draw_anchors, no_penalty
from degp.priors.weights import WeightPrior
from degp.runtime.streams import SideStream
from degp.typing import Batch, Loss

__all__ = [
    "DEGP",
    "Built",
    "Kind",
    "Memberwise",
    "Method",
    "Prepared",
    "batch_loss",
    "de",
    "degp",
    "rde",
    "require_method",
    "rms",
    "with_likelihood",
]


@dataclass(frozen=True)
class Prepared:
    """What a step needs besides the members: measurement points, and the prior on the batch and these points.

    Attributes:
        measurement: X_ν, the measurement points.
        gram_root: L with LLᵀ = K_p on the points of the divergence, jitter included.
        gram_root_inverse: L⁻¹.
    """

    measurement: Inputs
    gram_root: Float[Tensor, "N N"]
    gram_root_inverse: Float[Tensor, "N N"]

    @classmethod
    def empty(cls, inputs: Inputs) -> "Prepared":
        """No measurement points and no prior."""
        nothing = torch.empty(0, 0, device=device_of(inputs))
        return cls(take_points(inputs, slice(0)), nothing, nothing)

    def tensors(self) -> list[Tensor]:
        """The fields in order; `Prepared(*tensors)` is the way back."""
        return [self.measurement, self.gram_root, self.gram_root_inverse]


@runtime_checkable
class Method(Protocol):
    """How an ensemble is trained, and its predictive distribution of new targets.

    The methods here are `nn.Module`s: the parameters of likelihood and prior train, move and are saved with them.
    """

    @property
    def likelihood(self) -> Likelihood:
        """p(y | f)."""
        ...

    @property
    def epsilon(self) -> float:
        """λ at a new point as a share of its mean variance; 0 for a mixture of members."""
        ...

    def prepare(self, inputs: Inputs, *, generator: torch.Generator | None = None) -> Prepared:
        """The part of a step that needs no member; a captured step computes it ahead, on a second stream."""
        ...

    def loss(
        self,
        outputs: Float[Tensor, "M N C"],
        weights: HasParts,
        batch: Batch,
        prepared: Prepared,
        *,
        generator: torch.Generator | None = None,
    ) -> Loss:
        """The loss, from the members' outputs on the batch and the measurement points and from their weights."""
        ...

    def posterior(self, outputs: Float[Tensor, "M N C"], coefficients: Coefficients | None = None) -> LowRankGaussian:
        """q(f) at new points, conditioned on the observations that `coefficients` summarise."""
        ...

    def predictive(
        self,
        outputs: Float[Tensor, "M N C"],
        *,
        coefficients: Coefficients | None = None,
        num_draws: int = 1000,
        generator: torch.Generator | None = None,
    ) -> Predictive:
        """The predictive distribution of new targets, independent of the other points in the call."""
        ...

    def draw(
        self, outputs: Float[Tensor, "M N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N C"]:
        """One function from the method's posterior, for Thompson sampling."""
        ...

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        """By functions alone: from Python 3.12 on, isinstance does not see that a module has a likelihood."""
        functions = ("prepare", "loss", "posterior", "predictive", "draw")
        return all(hasattr(other, name) for name in functions) if cls is Method else NotImplemented


def require_method(method: object) -> None:
    """Raises TypeError for what is no method, such as its name."""
    if isinstance(method, type) or not isinstance(method, Method):
        raise TypeError(
            f"a method must be a value such as degp.methods.de(degp.Gaussian()), which knows its likelihood, but it is "
            f"{method!r}"
        )


AnyMethod = TypeVar("AnyMethod", bound=Method)


def batch_loss(ensemble: Ensemble, batch: Batch, method: Method, *, generator: torch.Generator | None = None) -> Loss:
    """The method's loss on a batch: prepare, evaluate the members, score. For training loops of your own.

    loss = batch_loss(ensemble, Batch(x, y, population=N), method)
    loss.total.backward()

    N is the size of the training set. Rows of a `Batch` of the whole set have it.
    """
    if not batch.stated:
        raise ValueError(
            f"a batch must state the size N of its training set, which scales the prior against the data, but this one "
            f"of {len(batch)} points does not; pass Batch(x, y, population=N), or rows of a Batch of the whole set"
        )
    prepared = method.prepare(batch.inputs, generator=generator)
    outputs = ensemble.joint_outputs(batch.inputs, prepared.measurement)
    return method.loss(outputs, ensemble, batch, prepared, generator=generator)


def with_likelihood(method: AnyMethod, likelihood: Likelihood) -> AnyMethod:
    """The same method with another likelihood, for example at a fitted temperature; everything else is shared.

    Example:
        >>> with_likelihood(method, Gaussian(variance=0.5)).likelihood.variance.item()
        0.5
    """
    assert isinstance(method, nn.Module)
    other = copy.copy(method)
    other.__dict__["_modules"] = {**method._modules, "likelihood": likelihood}
    return other


class Memberwise(nn.Module):
    """(1/B) Σᵢ Σ_batch −ω log p(y | gᵢ(x)) + penalty: members train independently.        theory/objectives.md (1)–(3)

    The weight ω of a point is 1 unless the batch has `weights`.
    New targets follow the mixture of the members, each with probability 1/M.        theory/prediction.md (4)
    """

    epsilon = 0.0

    def __init__(self, likelihood: Likelihood, penalty: Penalty) -> None:
        super().__init__()
        self.likelihood = _checked(likelihood)
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
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))  # half precision is for networks only
        data = -batch.weigh(self.likelihood.log_prob(outputs, batch.targets)).sum() / M
        penalty = self.penalty(weights, batch.population).to(data)
        return Loss(M / B * data + penalty, {"data": data.detach() / B, "penalty": penalty.detach()})

    def posterior(self, outputs: Float[Tensor, "M N C"], coefficients: Coefficients | None = None) -> LowRankGaussian:
        """The Gaussian with the mixture's mean and covariance."""
        return _conditioned(LowRankGaussian(*moments(outputs), 0.0), coefficients)

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
            return self.likelihood.mixture(outputs)
        return _process_predictive(self, outputs, coefficients, num_draws, generator)

    def draw(
        self, outputs: Float[Tensor, "M N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N C"]:
        """A member chosen at random."""
        return outputs[int(torch.randint(len(outputs), (), generator=generator, device=outputs.device))]


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
        self.likelihood = _checked(likelihood)
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
        points = self.domain.points(inputs, measurement)
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
        """N(m, AᵀA + diag λ(x)) with each point's own λ(x) = ε tr k(x, x) / C."""
        return _conditioned(ensemble_posterior(outputs, diagonal=PointwiseAverage(self.epsilon)), coefficients)

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
            return self.likelihood.mixture(outputs)
        return _process_predictive(self, outputs, coefficients, num_draws, generator)

    def draw(
        self, outputs: Float[Tensor, "M N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N C"]:
        """A joint draw of q(f)."""
        return self.posterior(outputs).sample(1, generator=generator)[0]


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


Built = Memberwise | DEGP


class Kind(StrEnum):
    """A method by its name, where users type one: estimators, command line, experiment tables.

    Example:
        >>> Kind("degp").label, [kind.value for kind in Kind]
        ('DE-GP', ['de', 'rde', 'rms', 'degp'])
    """

    DE = "de"
    RDE = "rde"
    RMS = "rms"
    DEGP = "degp"

    @property
    def label(self) -> str:
        """The name in tables and figures."""
        return {Kind.DE: "DE", Kind.RDE: "rDE", Kind.RMS: "RMS", Kind.DEGP: "DE-GP"}[self]

    @classmethod
    def _missing_(cls, value: object) -> "Kind":
        raise ValueError(f"a method must be one of {', '.join(cls)}, but it is {value!r}")

    def build(
        self,
        likelihood: Likelihood,
        ensemble: Ensemble,
        weight_prior: WeightPrior,
        *,
        functional: Callable[[], Built],
        weight: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Built:
        """The method of this name.

        Args:
            weight_prior: of the penalties of rDE and RMS.
            functional: makes DE-GP, whose prior the baselines do not need.
            weight: of these penalties.
            generator: of RMS's anchors.
        """
        match self:
            case Kind.DE:
                return de(likelihood)
            case Kind.RDE:
                return rde(likelihood, weight_prior, weight=weight)
            case Kind.RMS:
                return rms(likelihood, ensemble, weight_prior, weight=weight, generator=generator)
            case Kind.DEGP:
                return functional()


def _checked(likelihood: Likelihood) -> Likelihood:
    if not isinstance(likelihood, Likelihood) or isinstance(likelihood, type):
        raise TypeError(
            f"a likelihood must be a value such as degp.Gaussian() or degp.Categorical(), but it is {likelihood!r}"
        )
    return likelihood


def _on(q: LowRankGaussian, rows: slice) -> LowRankGaussian:
    """q on some of its points; itself where they are all."""
    num_points = q.shape[1]
    return q if len(range(num_points)[rows]) == num_points else q.marginal(rows)


def _conditioned(q: LowRankGaussian, coefficients: Coefficients | None) -> LowRankGaussian:
    return q if coefficients is None else q.updated(coefficients)


def _process_predictive(
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
