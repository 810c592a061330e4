"""Likelihoods p(y | f): log densities per member, expectations under the posterior, and predictive distributions."""

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from degp.gaussian import LowRankGaussian
from degp.posterior import moments
from degp.predictive import (
    BinaryPredictive,
    ClassPredictive,
    Predictive,
    RegressionPredictive,
    average_over,
    require_draws,
)

__all__ = ["Bernoulli", "Categorical", "Gaussian", "HeteroscedasticGaussian", "Likelihood"]

LOG_2PI = math.log(2 * math.pi)


@runtime_checkable
class Likelihood(Protocol):
    """What methods need of a likelihood; every one here is an `nn.Module` with its own parameters.

    Example:
        >>> likelihood: Likelihood = Categorical()
        >>> likelihood.log_prob(torch.zeros(5, 2, 4), torch.tensor([0, 3])).shape
        torch.Size([5, 2])
    """

    def check(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        """Raises ValueError where shape or dtype of the targets do not fit the number of outputs; reads no values."""
        ...

    def check_values(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        """Raises ValueError where a target has an invalid value."""
        ...

    def log_prob(self, outputs: Float[Tensor, "M N C"], targets: Shaped[Tensor, "N ..."]) -> Float[Tensor, "M N"]:
        """log p(y | gᵢ(x)) per member and point."""
        ...

    def expected_log_prob(
        self, q: LowRankGaussian, targets: Shaped[Tensor, "N ..."], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N"]:
        """E_q log p(y | f(x)) per point."""
        ...

    def widen(self, factor: float) -> None:
        """Multiplies the noise variance or the temperature by a factor, in place."""
        ...

    def predictive(
        self, q: LowRankGaussian, *, num_draws: int = 1000, generator: torch.Generator | None = None
    ) -> Predictive:
        """The predictive distribution of new targets when f ~ q, per point."""
        ...

    def mixture(self, outputs: Float[Tensor, "M N C"]) -> Predictive:
        """The predictive distribution of new targets when f is one of the members, each with probability 1/M."""
        ...


class Gaussian(nn.Module):
    """y ~ N(f, σ²) for each output independently; the expectation is exact.        theory/likelihoods.md (1)

    With units, y = offset + unit · (f + noise): networks stay in standardised units, where outputs can be compared.

    Args:
        variance: σ², or its initial value; one for all outputs, or one per output.
        learned: whether σ² is a parameter to train.
        floor: a lower bound of σ² while it is learned; must be less than the initial value.
        units: (offset, unit) of the targets per output; None for (0, 1).
    """

    floor: Tensor
    offset: Tensor
    unit: Tensor

    def __init__(
        self,
        variance: float | Sequence[float] = 0.1,
        *,
        learned: bool = False,
        floor: float = 0.0,
        units: tuple[Sequence[float], Sequence[float]] | None = None,
    ) -> None:
        super().__init__()
        values = torch.as_tensor(variance, dtype=torch.float64)
        _require_positive("variance", values)
        if not 0 <= floor < float(values.min()):
            raise ValueError(
                f"floor must be at least 0 and less than the variance {float(values.min())}, but it is {floor}"
            )
        self.log_variance = nn.Parameter((values - floor).log(), learned)
        self.register_buffer("floor", torch.tensor(floor, dtype=torch.float64))
        self.has_units = units is not None
        offset, unit = (torch.as_tensor(part, dtype=torch.float64).clone() for part in units or ((), ()))
        if units is not None:
            _require_positive("unit", unit)
            if offset.ndim != 1 or offset.shape != unit.shape:
                raise ValueError(f"units must be an offset and a unit per output, but they are {units}")
        self.register_buffer("offset", offset, persistent=False)  # a setting, no weight
        self.register_buffer("unit", unit, persistent=False)

    @property
    def variance(self) -> Float[Tensor, "*C"]:
        """σ², in the units of f."""
        return self.floor + self.log_variance.exp()

    def check(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        _check_real(targets, num_outputs)
        if self.log_variance.ndim and len(self.log_variance) != num_outputs:
            raise ValueError(
                f"there must be one noise variance per output, or one for all, but there are {len(self.log_variance)} "
                f"and the network has {num_outputs} outputs"
            )
        if self.has_units and len(self.unit) not in (1, num_outputs):
            raise ValueError(
                f"units must be those of each target, or one for all, but there are {len(self.unit)} and the network "
                f"has {num_outputs} outputs"
            )

    def check_values(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        _check_finite(targets)

    def log_prob(self, outputs: Float[Tensor, "M N C"], targets: Float[Tensor, "N C"]) -> Float[Tensor, "M N"]:
        return self._log_density((self._standardised(targets) - outputs).square()).sum(-1)

    def expected_log_prob(
        self, q: LowRankGaussian, targets: Float[Tensor, "N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N"]:
        """−½ [log 2πσ² + ((y − m)² + k(x, x)) / σ²]."""
        return self._log_density((self._standardised(targets) - q.mean).square() + q.variance()).sum(-1)

    @torch.no_grad()
    def widen(self, factor: float) -> None:
        """Multiplies σ² by a factor, in place."""
        self.log_variance.add_(math.log(factor))
        self.floor.mul_(factor)

    def predictive(
        self, q: LowRankGaussian, *, num_draws: int = 1000, generator: torch.Generator | None = None
    ) -> RegressionPredictive:
        """N(m, k(x, x) + σ²), in closed form."""
        noise = self.variance.to(q.mean).expand_as(q.mean)
        if not self.has_units:
            return RegressionPredictive(q, noise)
        offset, unit = self.offset.to(q.mean), self.unit.to(q.mean)
        diagonal = (q.diagonal * unit.square()).expand_as(q.mean)
        scaled = LowRankGaussian(offset + unit * q.mean, unit * q.deviations, diagonal)
        return RegressionPredictive(scaled, unit.square() * noise)

    def mixture(self, outputs: Float[Tensor, "M N C"]) -> RegressionPredictive:
        """Mean and variance of the mixture of N(gᵢ, σ²)."""
        return self.predictive(LowRankGaussian(*moments(outputs), 0.0))

    def _standardised(self, targets: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return (targets - self.offset.to(targets)) / self.unit.to(targets) if self.has_units else targets

    def _log_density(self, squares: Float[Tensor, "... C"]) -> Float[Tensor, "... C"]:
        """log p(y), from squares in the units of f."""
        variance = self.variance.to(squares)
        density = -0.5 * (LOG_2PI + variance.log() + squares / variance)
        return density - self.unit.to(squares).log() if self.has_units else density


class HeteroscedasticGaussian(nn.Module):
    """y ~ N(f, eˢ) with f and s the two halves of the network's 2C outputs.        theory/likelihoods.md (3)

    The posterior is jointly Gaussian over f and s, and so the expectation is exact, their covariance included.

    Args:
        base_variance: the noise variance where s = 0; set it to about the targets' variance.

    Example:
        >>> outputs = torch.zeros(5, 7, 2)  # the function, and the logarithm of its noise variance
        >>> HeteroscedasticGaussian().mixture(outputs).mean.shape
        torch.Size([7, 1])
    """

    def __init__(self, base_variance: float = 1.0) -> None:
        super().__init__()
        _require_positive("base_variance", base_variance)
        self.log_base: Tensor
        self.register_buffer("log_base", torch.tensor(math.log(base_variance), dtype=torch.float64))

    def check(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        if num_outputs % 2:
            raise ValueError(
                f"noise that depends on the input needs two outputs per target, its mean and its log variance, but the "
                f"network has {num_outputs}; give it an even number"
            )
        _check_real(targets, num_outputs // 2)

    def check_values(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        _check_finite(targets)

    def log_prob(self, outputs: Float[Tensor, "M N C2"], targets: Float[Tensor, "N C"]) -> Float[Tensor, "M N"]:
        f, s = outputs.chunk(2, dim=-1)
        s = s + self.log_base.to(s)
        return -0.5 * (LOG_2PI + s + (targets - f).square() * torch.exp(-s)).sum(-1)

    def expected_log_prob(
        self, q: LowRankGaussian, targets: Float[Tensor, "N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N"]:
        """−½ [log 2π + μ_s + e^(−μ_s + v_s/2) ((y − μ_f + c_fs)² + v_f)], c_fs the covariance of f and s."""
        mean_f, mean_s = q.mean.chunk(2, dim=-1)
        variance_f, variance_s = q.variance().chunk(2, dim=-1)
        deviations_f, deviations_s = q.deviations.chunk(2, dim=-1)
        covariance = (deviations_f * deviations_s).sum(0)
        mean_s = mean_s + self.log_base.to(mean_s)
        squares = (targets - mean_f + covariance).square() + variance_f
        return -0.5 * (LOG_2PI + mean_s + torch.exp(variance_s / 2 - mean_s) * squares).sum(-1)

    @torch.no_grad()
    def widen(self, factor: float) -> None:
        """Multiplies the noise variance of all inputs by a factor, in place."""
        self.log_base.add_(math.log(factor))

    def predictive(
        self, q: LowRankGaussian, *, num_draws: int = 1000, generator: torch.Generator | None = None
    ) -> RegressionPredictive:
        """Mean and variance of y in closed form: μ_f, and v_f + E eˢ = v_f + e^(μ_s + v_s/2)."""
        mean_s, variance_s = q.mean.chunk(2, dim=-1)[1], q.variance().chunk(2, dim=-1)[1]
        return RegressionPredictive(_first_half(q), torch.exp(mean_s + self.log_base.to(mean_s) + variance_s / 2))

    def mixture(self, outputs: Float[Tensor, "M N C2"]) -> RegressionPredictive:
        """Mean and variance of the mixture of N(fᵢ, e^sᵢ)."""
        f, s = outputs.chunk(2, dim=-1)
        return RegressionPredictive(LowRankGaussian(*moments(f), 0.0), torch.exp(s + self.log_base.to(s)).mean(0))


class Categorical(nn.Module):
    """y ~ softmax(f / τ) over C classes.        theory/likelihoods.md (4)

    Args:
        temperature: τ, or its initial value.
        learned: whether τ is a parameter to train.
        num_draws: U, joint draws of f for the expectation.

    Example:
        >>> Categorical(temperature=0.5).mixture(torch.randn(5, 7, 3)).probabilities.shape
        torch.Size([7, 3])
    """

    def __init__(self, temperature: float = 1.0, *, learned: bool = False, num_draws: int = 256) -> None:
        super().__init__()
        self.log_temperature = _log_temperature(temperature, learned)
        self.num_draws = require_draws(num_draws)

    @property
    def temperature(self) -> Float[Tensor, ""]:
        """τ."""
        return self.log_temperature.exp()

    @torch.no_grad()
    def widen(self, factor: float) -> None:
        """Multiplies τ by a factor, in place."""
        self.log_temperature.add_(math.log(factor))

    def check(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        if targets.ndim != 1 or targets.is_floating_point() or targets.dtype == torch.bool:
            raise ValueError(
                f"class labels must be whole numbers, one per point (N,), but targets are {targets.dtype} of shape "
                f"{tuple(targets.shape)}; use {_as_labels(targets)}"
            )

    def check_values(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        labels = targets.long()  # some unsigned types have no minimum
        if len(labels) and not (0 <= int(labels.min()) and int(labels.max()) < num_outputs):
            raise ValueError(
                f"labels must lie in 0 … {num_outputs - 1}, since the network has {num_outputs} outputs, but they "
                f"reach from {int(labels.min())} to {int(labels.max())}; number the classes from 0"
            )

    def probabilities(self, functions: Float[Tensor, "... C"]) -> Float[Tensor, "... C"]:
        """softmax(f / τ)."""
        return torch.softmax(functions / self.temperature.to(functions), dim=-1)

    def log_prob(self, outputs: Float[Tensor, "M N C"], targets: Int[Tensor, "N"]) -> Float[Tensor, "M N"]:
        scores = torch.log_softmax(outputs / self.temperature.to(outputs), dim=-1)
        return scores.gather(-1, targets.long().expand(len(outputs), -1)[..., None]).squeeze(-1)

    def expected_log_prob(
        self, q: LowRankGaussian, targets: Int[Tensor, "N"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N"]:
        """(1/U) Σᵤ log softmax(fᵤ / τ)_y with reparameterised joint draws fᵤ ~ q."""
        return self.log_prob(q.sample(self.num_draws, generator=generator), targets).mean(0)

    def predictive(
        self, q: LowRankGaussian, *, num_draws: int = 1000, generator: torch.Generator | None = None
    ) -> ClassPredictive:
        """The mean over `num_draws` draws of f, in chunks of points so that memory stays bounded."""
        return average_over(q, self.mixture, num_draws, generator=generator)

    def mixture(self, outputs: Float[Tensor, "M N C"]) -> ClassPredictive:
        """The mean over the members."""
        return ClassPredictive.from_draws(self.probabilities(outputs))


class Bernoulli(nn.Module):
    """y ~ Bernoulli(σ(f / τ)) for each output independently; arguments as in `Categorical`.

    Example:
        >>> Bernoulli().mixture(torch.randn(5, 7, 1)).probabilities.shape
        torch.Size([7, 1])
    """

    def __init__(self, temperature: float = 1.0, *, learned: bool = False, num_draws: int = 256) -> None:
        super().__init__()
        self.log_temperature = _log_temperature(temperature, learned)
        self.num_draws = require_draws(num_draws)

    @property
    def temperature(self) -> Float[Tensor, ""]:
        """τ."""
        return self.log_temperature.exp()

    @torch.no_grad()
    def widen(self, factor: float) -> None:
        """Multiplies τ by a factor, in place."""
        self.log_temperature.add_(math.log(factor))

    def check(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        if targets.ndim != 2 or targets.shape[1] != num_outputs:
            raise ValueError(
                f"binary targets must have one row per point and one column per output, (N, {num_outputs}), but their "
                f"shape is {tuple(targets.shape)}; use targets[:, None] for a single output"
            )

    def check_values(self, targets: Shaped[Tensor, "N ..."], num_outputs: int) -> None:
        invalid = targets[(targets != 0) & (targets != 1)]
        if len(invalid):
            raise ValueError(f"binary targets must be 0 or 1, but they include {invalid[0].item()}")

    def probabilities(self, functions: Float[Tensor, "... C"]) -> Float[Tensor, "... C"]:
        """σ(f / τ), the probability of 1 per output."""
        return torch.sigmoid(functions / self.temperature.to(functions))

    def log_prob(self, outputs: Float[Tensor, "M N C"], targets: Shaped[Tensor, "N C"]) -> Float[Tensor, "M N"]:
        sign = 2 * targets.to(outputs) - 1
        return F.logsigmoid(sign * outputs / self.temperature.to(outputs)).sum(-1)

    def expected_log_prob(
        self, q: LowRankGaussian, targets: Shaped[Tensor, "N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N"]:
        """(1/U) Σᵤ log σ(±fᵤ / τ) with reparameterised joint draws fᵤ ~ q."""
        return self.log_prob(q.sample(self.num_draws, generator=generator), targets).mean(0)

    def predictive(
        self, q: LowRankGaussian, *, num_draws: int = 1000, generator: torch.Generator | None = None
    ) -> BinaryPredictive:
        """The mean over `num_draws` draws of f, in chunks of points so that memory stays bounded."""
        return average_over(q, self.mixture, num_draws, generator=generator)

    def mixture(self, outputs: Float[Tensor, "M N C"]) -> BinaryPredictive:
        """The mean over the members."""
        return BinaryPredictive.from_draws(self.probabilities(outputs))


def _as_labels(targets: Tensor) -> str:
    """What makes labels of targets."""
    if targets.ndim != 2:
        return "targets.long() of the class index"
    return "targets[:, 0].long()" if targets.shape[1] == 1 else "targets.argmax(1) of one-hot rows"


def _check_real(targets: Tensor, num_outputs: int) -> None:
    if not targets.is_floating_point() or targets.ndim != 2 or targets.shape[1] != num_outputs:
        raise ValueError(
            f"real targets must be floating-point rows (N, {num_outputs}), one column per output of the network, but "
            f"they are {targets.dtype} of shape {tuple(targets.shape)}; a single target is targets[:, None]"
        )


def _check_finite(targets: Tensor) -> None:
    if not bool(targets.isfinite().all()):
        rows = (~targets.isfinite()).flatten(1).any(1).nonzero().flatten()
        raise ValueError(
            f"targets must be finite, but {len(rows)} of {len(targets)} rows have NaN or infinite values, the first is "
            f"row {int(rows[0])}; drop these rows or fill them in"
        )


def _first_half(q: LowRankGaussian) -> LowRankGaussian:
    return LowRankGaussian(*(part.chunk(2, dim=-1)[0] for part in (q.mean, q.deviations, q.diagonal)))


def _log_temperature(temperature: float, learned: bool) -> nn.Parameter:
    _require_positive("temperature", temperature)
    return nn.Parameter(torch.tensor(math.log(temperature), dtype=torch.float64), learned)


def _require_positive(name: str, value: float | Float[Tensor, "*C"]) -> None:
    values = torch.as_tensor(value)
    if not values.numel() or not bool((values > 0).all() and values.isfinite().all()):
        raise ValueError(f"{name} must be positive and finite, but it is {values.tolist()}")
