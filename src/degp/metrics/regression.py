"""Scores and calibration of Gaussian predictions N(m, σ²) of real targets, where σ² is the `variance` of a new target.

The negative log-likelihood sums over the C outputs, as a joint density does; every other score averages over points
and outputs, in the units of the targets. Throughout, z = (y − m)/σ, and φ and Φ are the standard normal's density and
distribution function.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from degp.metrics.checks import aligned, check_at_least, check_open_unit

__all__ = [
    "CalibrationCurve",
    "calibration_curve",
    "calibration_error",
    "coverage",
    "crps",
    "gaussian_nll",
    "interval_score",
    "interval_width",
    "log_normal_crps",
    "mae",
    "miscalibration_area",
    "normal_quantile",
    "pit",
    "rmse",
]


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """For each expected level p, the observed fraction of targets inside the central interval of probability p.

    Example:
        >>> targets = torch.tensor([[-2.0], [-0.5], [0.5], [2.0]])
        >>> curve = calibration_curve(torch.zeros(4, 1), torch.ones(4, 1), targets, num_levels=3)
        >>> curve.observed
        tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """

    expected: Float[Tensor, "levels"]
    observed: Float[Tensor, "levels"]


def gaussian_nll(mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
    """Negative log-likelihood per point, in nats.

    (1/N) Σ_n Σ_c ½ [ log 2πσ² + z² ]

    Example:
        >>> mean, variance, targets = torch.tensor([[1.0], [2.0]]), torch.ones(2, 1), torch.tensor([[1.0], [4.0]])
        >>> round(gaussian_nll(mean, variance, targets), 3)
        1.919
    """
    z, std = _standardise(mean, variance, targets)
    per_output = 0.5 * math.log(2 * math.pi) + std.log() + 0.5 * z.square()
    return per_output.sum(-1).mean().item()


def rmse(mean: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
    """Root mean squared error, √( (1/NC) Σ (y − m)² ): one root over all outputs.

    Example:
        >>> rmse(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [4.0]]))
        1.4142135623730951
    """
    mean, targets = aligned("N C", mean=mean, targets=targets)
    return (targets - mean).square().mean().sqrt().item()


def mae(mean: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
    """Mean absolute error, (1/NC) Σ |y − m|.

    Example:
        >>> mae(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [4.0]]))
        1.0
    """
    mean, targets = aligned("N C", mean=mean, targets=targets)
    return (targets - mean).abs().mean().item()


def crps(mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
    """Continuous ranked probability score, the mean of ∫ (F(x) − 1[y ≤ x])² dx; as σ → 0 it becomes the `mae`.

    (1/NC) Σ σ [ z (2Φ(z) − 1) + 2φ(z) − 1/√π ]        Gneiting and Raftery (2007)

    Example:
        >>> mean, variance, targets = torch.tensor([[1.0], [2.0]]), torch.ones(2, 1), torch.tensor([[1.0], [4.0]])
        >>> round(crps(mean, variance, targets), 3)
        0.843
    """
    z, std = _standardise(mean, variance, targets)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)  # φ(z)
    return (std * (z * _central_mass(z) + 2 * density - 1 / math.sqrt(math.pi))).mean().item()


def log_normal_crps(mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]) -> float:
    """The CRPS of targets whose log has this mean m and variance σ².

    (1/NC) Σ y [ 2Φ(z) − 1 ] − 2 exp(m + σ²/2) [ Φ(z − σ) + Φ(σ/√2) − 1 ],  z = (log y − m)/σ     Baran and Lerch (2015)

    A target that is not positive lies below the distribution: z = −∞.

    Example:
        >>> mean, variance, targets = torch.tensor([[0.0], [1.0]]), torch.ones(2, 1), torch.tensor([[1.0], [4.0]])
        >>> round(log_normal_crps(mean, variance, targets), 3)
        0.601
    """
    mean, variance, targets = aligned("N C", mean=mean, variance=variance, targets=targets)
    _check_positive(variance)
    std, phi = variance.sqrt(), torch.special.ndtr
    z = (targets.clamp_min(0.0).log() - mean) / std
    expected = (mean + variance / 2).exp()
    return (targets * _central_mass(z) - 2 * expected * (phi(z - std) + phi(std / math.sqrt(2)) - 1)).mean().item()


def pit(
    mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"]
) -> Float[Tensor, "N C"]:
    """Probability integral transform Φ(z) of each target: uniform on [0, 1] if the predictions are calibrated.

    Example:
        >>> mean, variance, targets = torch.tensor([[1.0], [2.0]]), torch.ones(2, 1), torch.tensor([[1.0], [4.0]])
        >>> pit(mean, variance, targets)
        tensor([[0.5000],
                [0.9772]], dtype=torch.float64)
    """
    z, _ = _standardise(mean, variance, targets)
    return torch.special.ndtr(z)


def coverage(
    mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"], level: float = 0.9
) -> float:
    """Fraction of the targets inside the central interval of probability `level`.

    (1/NC) Σ 1[ |y − m| ≤ qσ ],  Φ(q) = (1 + level)/2

    Example:
        >>> mean, variance, targets = torch.tensor([[1.0], [2.0]]), torch.ones(2, 1), torch.tensor([[1.0], [4.0]])
        >>> coverage(mean, variance, targets, level=0.9)
        0.5
    """
    check_open_unit("level", level)
    z, _ = _standardise(mean, variance, targets)
    return (_central_mass(z.abs()) <= level).double().mean().item()


def interval_width(variance: Float[Tensor, "N C"], level: float = 0.9) -> float:
    """Mean width 2qσ of the central interval of `coverage`.

    Example:
        >>> round(interval_width(torch.tensor([[1.0], [1.0]]), level=0.9), 3)
        3.29
    """
    check_open_unit("level", level)
    (variance,) = aligned("N C", variance=variance)
    _check_positive(variance)
    return 2 * normal_quantile(level) * variance.sqrt().mean().item()


def interval_score(
    mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], targets: Float[Tensor, "N C"], level: float = 0.9
) -> float:
    """Width of the central interval plus a penalty for every target outside: a proper score, lower is better.

    (1/NC) Σ 2qσ + 2/(1 − level) · max(|y − m| − qσ, 0)        Gneiting and Raftery (2007)

    Example:
        >>> mean, variance, targets = torch.tensor([[1.0], [2.0]]), torch.ones(2, 1), torch.tensor([[1.0], [4.0]])
        >>> round(interval_score(mean, variance, targets, level=0.9), 3)
        6.841
    """
    check_open_unit("level", level)
    z, std = _standardise(mean, variance, targets)
    half = normal_quantile(level)
    excess = (z.abs() - half).relu()
    return (std * (2 * half + 2 / (1 - level) * excess)).mean().item()


def calibration_curve(
    mean: Float[Tensor, "N C"],
    variance: Float[Tensor, "N C"],
    targets: Float[Tensor, "N C"],
    *,
    num_levels: int = 100,
) -> CalibrationCurve:
    """The `coverage` of central intervals at `num_levels` levels evenly spaced from 0 to 1, both included.

    Example:
        >>> targets = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
        >>> curve = calibration_curve(torch.zeros(1000, 1), torch.ones(1000, 1), targets)
        >>> round((curve.observed - curve.expected).abs().max().item(), 2)
        0.02
    """
    check_at_least("num_levels", num_levels, 2)
    z, _ = _standardise(mean, variance, targets)
    mass = _central_mass(z.abs()).flatten().sort().values
    expected = torch.linspace(0, 1, num_levels, dtype=mass.dtype, device=mass.device)
    return CalibrationCurve(expected, torch.searchsorted(mass, expected, right=True) / mass.new_tensor(len(mass)))


def calibration_error(
    mean: Float[Tensor, "N C"],
    variance: Float[Tensor, "N C"],
    targets: Float[Tensor, "N C"],
    *,
    num_levels: int = 100,
) -> float:
    """Mean of |observed − expected| over the levels of `calibration_curve` (uncertainty-toolbox's MACE).

    Example:
        >>> targets = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
        >>> overconfident = calibration_error(torch.zeros(1000, 1), torch.full((1000, 1), 0.25), targets)
        >>> overconfident > calibration_error(torch.zeros(1000, 1), torch.ones(1000, 1), targets)
        True
    """
    curve = calibration_curve(mean, variance, targets, num_levels=num_levels)
    return (curve.observed - curve.expected).abs().mean().item()


def miscalibration_area(
    mean: Float[Tensor, "N C"],
    variance: Float[Tensor, "N C"],
    targets: Float[Tensor, "N C"],
    *,
    num_levels: int = 100,
) -> float:
    """Area between the polygon through `calibration_curve` and the diagonal.

    A segment of width h whose ends lie a and b above the diagonal adds h(|a| + |b|)/2, or, if it crosses the diagonal,
    two triangles: h(a² + b²) / 2(|a| + |b|).

    Example:
        >>> targets = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
        >>> round(miscalibration_area(torch.zeros(1000, 1), torch.ones(1000, 1), targets), 2)
        0.0
    """
    curve = calibration_curve(mean, variance, targets, num_levels=num_levels)
    gap = curve.observed - curve.expected
    a, b, h = gap[:-1], gap[1:], curve.expected.diff()
    total = a.abs() + b.abs()
    crossing = (a.square() + b.square()) / total
    return (h / 2 * torch.where(a * b < 0, crossing, total)).sum().item()


def normal_quantile(level: float) -> float:
    """q with P(|z| ≤ q) = 2Φ(q) − 1 = level for a standard normal z: 1.64 for 90 %."""
    return math.sqrt(2) * torch.erfinv(torch.tensor(level, dtype=torch.float64)).item()


def _standardise(mean: Tensor, variance: Tensor, targets: Tensor) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
    """z = (y − m)/σ and σ, of checked arguments."""
    mean, variance, targets = aligned("N C", mean=mean, variance=variance, targets=targets)
    _check_positive(variance)
    std = variance.sqrt()
    return (targets - mean) / std, std


def _check_positive(variance: Tensor) -> None:
    if (variance <= 0).any():
        raise ValueError(
            f"variance must be positive, but the smallest is {variance.min():.6g}; "
            f"add the noise variance, or correct a variance computed by a difference of moments"
        )


def _central_mass(z: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    """2Φ(z) − 1 = erf(z/√2): for z ≥ 0 the probability of [−z, z]."""
    return torch.erf(z / math.sqrt(2))
