"""Invertible transforms of real targets, g = t(y), and what a Gaussian g says about y.

A transform is a value: `Identity()`, or `Log()` for positive targets whose noise grows with them.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from degp import metrics

__all__ = ["Identity", "Log", "Moments", "Transform", "transform_named"]


class Moments(NamedTuple):
    """The expected target, and the two parts of its variance.

    Example:
        >>> moments = Identity().moments(torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1))
        >>> float(moments.epistemic + moments.aleatoric)
        2.0
    """

    mean: Float[Tensor, "N C"]
    epistemic: Float[Tensor, "N C"]
    aleatoric: Float[Tensor, "N C"]


@runtime_checkable
class Transform(Protocol):
    """An increasing function t of each target, and the laws of y = t⁻¹(g) for a Gaussian g.

    Example:
        >>> transform: Transform = Log()
        >>> targets = torch.tensor([[1.0], [10.0]])
        >>> bool(torch.allclose(transform.inverse(transform.forward(targets)), targets))
        True
    """

    @property
    def name(self) -> str:
        """By which `transform_named` finds it."""
        ...

    def forward(self, targets: Float[Tensor, "*N C"]) -> Float[Tensor, "*N C"]:
        """g = t(y)."""
        ...

    def inverse(self, values: Float[Tensor, "*N C"]) -> Float[Tensor, "*N C"]:
        """y = t⁻¹(g)."""
        ...

    def log_slope(self, values: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        """log dy/dg at g: log p(y) = log p(g) − log dy/dg."""
        ...

    def moments(
        self, mean: Float[Tensor, "N C"], epistemic: Float[Tensor, "N C"], aleatoric: Float[Tensor, "N C"]
    ) -> Moments:
        """E y, Var E[y | f] and E Var[y | f] of y = t⁻¹(f + noise), from the mean and variances of f and noise."""
        ...

    def covariance(
        self, mean: Float[Tensor, "N"], epistemic: Float[Tensor, "N N"], aleatoric: Float[Tensor, "N"]
    ) -> Float[Tensor, "N N"]:
        """The covariance of y = t⁻¹(f + noise) for a joint Gaussian f and independent noise."""
        ...

    def crps(self, mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
        """The CRPS of y = t⁻¹(g), from the mean and variance of g."""
        ...


@dataclass(frozen=True)
class Identity:
    """g = y: targets with Gaussian noise of one size.

    Example:
        >>> Identity().inverse(torch.tensor([[2.0]]))
        tensor([[2.]])
    """

    @property
    def name(self) -> str:
        """identity."""
        return "identity"

    def forward(self, targets: Float[Tensor, "*N C"]) -> Float[Tensor, "*N C"]:
        """y."""
        return targets

    def inverse(self, values: Float[Tensor, "*N C"]) -> Float[Tensor, "*N C"]:
        """g."""
        return values

    def log_slope(self, values: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        """0."""
        return torch.zeros_like(values)

    def moments(
        self, mean: Float[Tensor, "N C"], epistemic: Float[Tensor, "N C"], aleatoric: Float[Tensor, "N C"]
    ) -> Moments:
        """They are those of g."""
        return Moments(mean, epistemic, aleatoric)

    def covariance(
        self, mean: Float[Tensor, "N"], epistemic: Float[Tensor, "N N"], aleatoric: Float[Tensor, "N"]
    ) -> Float[Tensor, "N N"]:
        """It is that of g."""
        return epistemic + aleatoric.diag()

    def crps(self, mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
        """That of a Gaussian."""
        return metrics.crps(mean, variance, targets)


@dataclass(frozen=True)
class Log:
    """g = log y: positive targets whose noise is proportional to them, such as prices, wages and durations.

    y is log-normal: its median is exp(m), its quantiles are exp(m + zs).        theory/prediction.md (5), (6)

    Attributes:
        limit: of the epistemic variance k of log y in the moments of y. Far from the data k grows without bound, and
            with it exp(k/2), although nothing is known there. Quantiles, draws and the density have no limit.

    Example:
        >>> mean, epistemic, aleatoric = Log().moments(torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(1, 1))
        >>> round(float(mean), 3), round(float(epistemic), 3), float(aleatoric)
        (1.133, 0.365, 0.0)
    """

    limit: float = 0.25

    @property
    def name(self) -> str:
        """log."""
        return "log"

    def forward(self, targets: Float[Tensor, "*N C"]) -> Float[Tensor, "*N C"]:
        """log y; −∞ where y is not positive, which has no density."""
        return targets.clamp_min(0.0).log()

    def inverse(self, values: Float[Tensor, "*N C"]) -> Float[Tensor, "*N C"]:
        """exp g."""
        return values.exp()

    def log_slope(self, values: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        """g, since dy/dg = exp g."""
        return values

    def moments(
        self, mean: Float[Tensor, "N C"], epistemic: Float[Tensor, "N C"], aleatoric: Float[Tensor, "N C"]
    ) -> Moments:
        """E y = exp(m + (k + σ²)/2), (eᵏ − 1)(E y)² and eᵏ (exp σ² − 1)(E y)²."""
        k = epistemic.clamp_max(self.limit)
        expected = (mean + (k + aleatoric) / 2).exp()
        square = expected.square()
        return Moments(expected, k.expm1() * square, k.exp() * aleatoric.expm1() * square)

    def covariance(
        self, mean: Float[Tensor, "N"], epistemic: Float[Tensor, "N N"], aleatoric: Float[Tensor, "N"]
    ) -> Float[Tensor, "N N"]:
        """Cov(yᵢ, yⱼ) = E yᵢ E yⱼ (exp Σᵢⱼ − 1); where k is limited, correlations stay."""
        k = epistemic.diagonal()
        shrunk = (k.clamp_max(self.limit) / k.clamp_min(torch.finfo(k.dtype).tiny)).sqrt()
        covariance = shrunk[:, None] * shrunk * epistemic + aleatoric.diag()
        expected = (mean + covariance.diagonal() / 2).exp()
        return expected[:, None] * expected * covariance.expm1()

    def crps(self, mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
        """That of a log-normal distribution."""
        return metrics.log_normal_crps(mean, variance, targets)


def transform_named(name: str) -> Transform:
    """The transform of this name.

    Example:
        >>> transform_named("log") == Log()
        True
    """
    known: dict[str, Transform] = {transform.name: transform for transform in (Identity(), Log())}
    if name not in known:
        raise ValueError(f"a transform of the target must be one of {', '.join(known)}, but it is {name!r}")
    return known[name]
