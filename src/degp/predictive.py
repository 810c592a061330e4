"""Predictive distributions of new targets, with total = aleatoric + epistemic uncertainty."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from degp.gaussian import LowRankGaussian
from degp.transforms import Moments, Transform

__all__ = [
    "BinaryPredictive",
    "ClassPredictive",
    "Predictive",
    "RegressionPredictive",
    "TransformedPredictive",
    "average_over",
    "binary_entropy",
    "entropy",
]


@runtime_checkable
class Predictive(Protocol):
    """A prediction for N points with its uncertainty decomposed: variances for real targets, nats for classes.

    Example:
        >>> outputs = torch.randn(10, 4, 3)
        >>> regression, classes = Gaussian(variance=0.1).mixture(outputs), Categorical().mixture(outputs)
        >>> regression.epistemic.shape, classes.epistemic.shape
        (torch.Size([4, 3]), torch.Size([4]))
    """

    @property
    def epistemic(self) -> Float[Tensor, "N *C"]:
        """The part that more data would remove."""
        ...

    @property
    def aleatoric(self) -> Float[Tensor, "N *C"]:
        """The part that would remain: noise."""
        ...

    @property
    def total(self) -> Float[Tensor, "N *C"]:
        """Their sum."""
        ...

    def log_prob(self, targets: Shaped[Tensor, "N *C"]) -> Float[Tensor, "N"]:
        """log p(y) per point."""
        ...


@dataclass(frozen=True)
class RegressionPredictive:
    """Real targets: y has mean m and variance k(x, x) + noise.        theory/prediction.md (1)

    Attributes:
        posterior: of the function, joint over the points.
        aleatoric: noise variance per point and output.

    Example:
        >>> q = LowRankGaussian(torch.zeros(4, 1), torch.ones(2, 4, 1), 0.5)
        >>> prediction = RegressionPredictive(q, torch.full((4, 1), 0.5))
        >>> prediction.epistemic[0], prediction.aleatoric[0], prediction.total[0]
        (tensor([2.5000]), tensor([0.5000]), tensor([3.]))
    """

    posterior: LowRankGaussian
    aleatoric: Float[Tensor, "N C"]

    @property
    def mean(self) -> Float[Tensor, "N C"]:
        """The expected target."""
        return self.posterior.mean

    @property
    def epistemic(self) -> Float[Tensor, "N C"]:
        """Variance of the function, k(x, x)."""
        return self.posterior.variance()

    @property
    def total(self) -> Float[Tensor, "N C"]:
        """Variance of the target."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Float[Tensor, "N C"]:
        """Standard deviation of the target."""
        return self.total.sqrt()

    def interval(self, level: float = 0.9) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """The central interval that contains a Gaussian target with probability `level`."""
        if not 0 < level < 1:
            raise ValueError(f"level is a probability between 0 and 1, but it is {level}; 0.9 is a 90 % interval")
        return self.around(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))

    def around(self, deviations: Float[Tensor, ""]) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """The mean minus and plus so many standard deviations."""
        half = deviations.to(self.std) * self.std
        return self.mean - half, self.mean + half

    def covariances(self) -> Float[Tensor, "C N N"]:
        """Of the targets of all points, noise included; one matrix per output."""
        return self.function_covariances() + torch.diag_embed(self.aleatoric.mT)

    def function_covariances(self) -> Float[Tensor, "C N N"]:
        """Of the function at all points; one matrix per output."""
        A = self.posterior.deviations
        return torch.einsum("mnc,mkc->cnk", A, A) + torch.diag_embed(self.posterior.diagonal.mT)

    def rescaled(self, scale: Float[Tensor, "C"], offset: Float[Tensor, "C"]) -> "RegressionPredictive":
        """Of scale · y + offset."""
        q, square = self.posterior, scale.square()
        moved = LowRankGaussian(q.mean * scale + offset, q.deviations * scale, q.diagonal * square)
        return RegressionPredictive(moved, self.aleatoric * square)

    def log_prob(self, targets: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
        """log N(y | m, total) per point, summed over its outputs."""
        _require_same_shape(targets, self.mean)
        variance = self.total.double()
        squares = (targets.double() - self.mean.double()).square() / variance
        return -0.5 * (squares + variance.log() + math.log(2 * math.pi)).sum(-1)

    def sample(self, num_draws: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "S N C"]:
        """Joint draws of the targets: functions from the posterior plus independent noise."""
        functions = self.posterior.sample(num_draws, generator=generator)
        noise = torch.randn(functions.shape, dtype=functions.dtype, device=functions.device, generator=generator)
        return functions + self.aleatoric.sqrt() * noise


@dataclass(frozen=True)
class TransformedPredictive:
    """Real targets y = t⁻¹(g) of a Gaussian g, in their own units.        theory/prediction.md (5)

    Attributes:
        gaussian: the predictive distribution of g.
        transform: t.

    Example:
        >>> from degp.transforms import Log
        >>> q = LowRankGaussian(torch.zeros(4, 1), torch.ones(2, 4, 1), 0.5)
        >>> prices = TransformedPredictive(RegressionPredictive(q, torch.full((4, 1), 0.5)), Log())
        >>> low, high = prices.interval(0.9)
        >>> bool((0 < low).all() and (low < prices.mean).all() and (prices.mean < high).all())
        True
    """

    gaussian: RegressionPredictive
    transform: Transform

    @property
    def mean(self) -> Float[Tensor, "N C"]:
        """The expected target."""
        return self._moments().mean

    @property
    def epistemic(self) -> Float[Tensor, "N C"]:
        """Var E[y | f], the variance that more data would remove."""
        return self._moments().epistemic

    @property
    def aleatoric(self) -> Float[Tensor, "N C"]:
        """E Var[y | f], the variance that would remain."""
        return self._moments().aleatoric

    @property
    def total(self) -> Float[Tensor, "N C"]:
        """Variance of the target."""
        _, epistemic, aleatoric = self._moments()
        return epistemic + aleatoric

    @property
    def std(self) -> Float[Tensor, "N C"]:
        """Standard deviation of the target."""
        return self.total.sqrt()

    def interval(self, level: float = 0.9) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """The central interval that contains the target with probability `level`: its ends are quantiles."""
        return self._inverse(self.gaussian.interval(level))

    def around(self, deviations: Float[Tensor, ""]) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """The targets of the mean of g minus and plus so many of its standard deviations."""
        return self._inverse(self.gaussian.around(deviations))

    def covariances(self) -> Float[Tensor, "C N N"]:
        """Of the targets of all points, noise included; one matrix per output."""
        g = self.gaussian
        outputs = zip(g.mean.mT, g.function_covariances(), g.aleatoric.mT, strict=True)
        return torch.stack([self.transform.covariance(*each) for each in outputs])

    def log_prob(self, targets: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
        """log p(y) = log p(g) − log dy/dg per point, summed over its outputs; −∞ where y cannot be."""
        values = self.transform.forward(targets.double())
        density = self.gaussian.log_prob(values) - self.transform.log_slope(values).sum(-1)
        return torch.where(values.isfinite().all(-1), density, -torch.inf)

    def sample(self, num_draws: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "S N C"]:
        """Joint draws of the targets."""
        return self.transform.inverse(self.gaussian.sample(num_draws, generator=generator))

    def _moments(self) -> Moments:
        return self.transform.moments(self.gaussian.mean, self.gaussian.epistemic, self.gaussian.aleatoric)

    def _inverse(self, ends: tuple[Tensor, Tensor]) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        low, high = ends
        return self.transform.inverse(low), self.transform.inverse(high)


@dataclass(frozen=True)
class ClassPredictive:
    """Classes: p(y) = E p(y | f), and the entropies around it, in nats.        theory/prediction.md (3)

    Attributes:
        probabilities: E p(y | f).
        total: entropy of the expected probabilities, H[E p].
        aleatoric: expected entropy, E H[p].

    Example:
        >>> outputs = torch.randn(100, 5, 3)
        >>> prediction = ClassPredictive.from_draws(outputs.softmax(-1))
        >>> prediction.probabilities.shape, prediction.labels.shape
        (torch.Size([5, 3]), torch.Size([5]))
    """

    probabilities: Float[Tensor, "N C"]
    total: Float[Tensor, "N"]
    aleatoric: Float[Tensor, "N"]

    @property
    def epistemic(self) -> Float[Tensor, "N"]:
        """H[E p] − E H[p], the mutual information of target and function."""
        return self.total - self.aleatoric

    def log_prob(self, labels: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
        """log p(y) per point."""
        return self.probabilities.gather(1, labels.long()[:, None]).squeeze(1).log()

    @property
    def labels(self) -> Int[Tensor, "N"]:
        """The most probable class per point."""
        return self.probabilities.argmax(-1)

    @classmethod
    def from_draws(cls, draws: Float[Tensor, "S N C"]) -> "ClassPredictive":
        """From the probabilities under S functions, or under M members."""
        mean = draws.mean(0)
        return cls(mean, entropy(mean), entropy(draws).mean(0))

    @classmethod
    def concatenate(cls, pieces: Sequence["ClassPredictive"]) -> "ClassPredictive":
        """Several predictions as one, over all their points."""
        return _concatenated(pieces)


@dataclass(frozen=True)
class BinaryPredictive:
    """C binary targets, independent given f: p(y = 1) = E p(y = 1 | f), and entropies in nats, summed over the targets.

    Attributes:
        probabilities: of a one, per target.
        total: H[E p].
        aleatoric: E H[p].

    Example:
        >>> prediction = BinaryPredictive.from_draws(torch.tensor([[[0.9, 0.2]], [[0.7, 0.4]]]))
        >>> prediction.probabilities, prediction.labels
        (tensor([[0.8000, 0.3000]]), tensor([[1, 0]]))
    """

    probabilities: Float[Tensor, "N C"]
    total: Float[Tensor, "N"]
    aleatoric: Float[Tensor, "N"]

    @property
    def epistemic(self) -> Float[Tensor, "N"]:
        """H[E p] − E H[p], the sum of the targets' mutual informations with the function."""
        return self.total - self.aleatoric

    def log_prob(self, targets: Shaped[Tensor, "N C"]) -> Float[Tensor, "N"]:
        """log p(y) per point, summed over its targets."""
        _require_same_shape(targets, self.probabilities)
        return torch.where(targets == 1, self.probabilities.log(), torch.log1p(-self.probabilities)).sum(1)

    @property
    def labels(self) -> Int[Tensor, "N C"]:
        """The more probable value per target."""
        return (self.probabilities > 0.5).long()

    @classmethod
    def from_draws(cls, draws: Float[Tensor, "S N C"]) -> "BinaryPredictive":
        """From the probabilities under S functions, or under M members."""
        mean = draws.mean(0)
        return cls(mean, binary_entropy(mean), binary_entropy(draws).mean(0))


Discrete = TypeVar("Discrete", ClassPredictive, BinaryPredictive)


def average_over(
    q: LowRankGaussian,
    predictive: Callable[[Float[Tensor, "S N C"]], Discrete],
    num_draws: int,
    *,
    generator: torch.Generator | None = None,
    most_values: int = 2**24,
) -> Discrete:
    """A predictive distribution of functions, for draws with each point's own C × C covariance.

    All points share the draws of z and of the white part, since only their marginals count: a prediction is independent
    of the other points in the call. At most about `most_values` numbers are in memory at a time.

    Example:
        >>> q = LowRankGaussian(torch.zeros(4, 3), torch.ones(2, 4, 3), 0.5)
        >>> average_over(q, lambda f: ClassPredictive.from_draws(f.softmax(-1)), num_draws=100).probabilities.shape
        torch.Size([4, 3])
    """
    (M, N, C), num_draws = q.shape, require_draws(num_draws)
    normal = torch.randn(num_draws, M + C, dtype=q.mean.dtype, device=q.mean.device, generator=generator)
    z, e = normal[:, :M], normal[:, None, M:]
    chunk = max(1, most_values // (num_draws * 4 * C))
    pieces = []
    for start in range(0, max(N, 1), chunk):
        own = q.marginal(slice(start, start + chunk))
        draws = own.mean + torch.einsum("sm,mnc->snc", z, own.deviations) + own.diagonal.sqrt() * e
        pieces.append(predictive(draws))
    return _concatenated(pieces)


def _concatenated(pieces: Sequence[Discrete]) -> Discrete:
    names = ("probabilities", "total", "aleatoric")
    return type(pieces[0])(*(torch.cat([getattr(piece, name) for piece in pieces]) for name in names))


def entropy(probabilities: Float[Tensor, "*S N C"]) -> Float[Tensor, "*S N"]:
    """−Σ_c p log p with 0 log 0 = 0.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5]]))
        tensor([0.6931])
    """
    return torch.special.entr(probabilities).sum(-1)


def binary_entropy(probabilities: Float[Tensor, "*S N C"]) -> Float[Tensor, "*S N"]:
    """−Σ_c [p log p + (1 − p) log(1 − p)]: C independent binary targets.

    Example:
        >>> binary_entropy(torch.tensor([[0.5]]))
        tensor([0.6931])
    """
    return (torch.special.entr(probabilities) + torch.special.entr(1 - probabilities)).sum(-1)


def require_draws(num_draws: int) -> int:
    """The same number; ValueError where there is no average over as many draws."""
    if num_draws < 1:
        raise ValueError(f"num_draws counts draws of the function and must be at least 1, but it is {num_draws}")
    return num_draws


def _require_same_shape(targets: Tensor, like: Tensor) -> None:
    if targets.shape != like.shape:
        raise ValueError(
            f"targets must have one row per point and one column per output, (N, C) = {tuple(like.shape)}, but their "
            f"shape is {tuple(targets.shape)}; a single target is targets[:, None]"
        )
