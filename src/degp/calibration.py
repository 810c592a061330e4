"""Calibration on validation data: the noise variance or temperature that minimises the validation NLL."""

import copy
import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp.data import check_weights
from degp.likelihoods import LOG_2PI
from degp.methods import Method, with_likelihood
from degp.predictive import BinaryPredictive, ClassPredictive, Predictive, RegressionPredictive

__all__ = [
    "LARGEST_TEMPERATURE",
    "calibrate",
    "calibrate_cautiously",
    "calibrated_nll",
    "first_within_one_error",
    "golden_section",
    "likely_temperature",
    "smoothed_nll",
    "smoothed_nll_by_point",
    "weighted_mean",
]

# of |log factor|: a noise variance may come from a fit without errors, a temperature is known to a factor
LARGEST_NOISE, LARGEST_TEMPERATURE = 12.0, 3.0
DOUBT = 2.0  # standard errors of evidence that a lower noise variance needs
TEMPERATURE_SPREAD = 0.5  # of the log-normal prior on the temperature
NUM_DRAWS = 256


def calibrated_nll(
    predictive: Predictive, targets: Tensor, weights: Float[Tensor, "N"] | None = None
) -> Float[Tensor, "N"]:
    """−log p(y) per point as after `calibrate`, up to the width of a grid; for classes −log p(y) as it is.

    While the noise variance is being learned it runs ahead of the fit or behind it. The delivered model is calibrated,
    so an epoch is scored by the calibrated NLL.

    Example:
        >>> calibrated_nll(method.predictive(torch.zeros(3, 2, 1)), torch.tensor([[0.5], [-0.5]]))
        tensor([0.7275, 0.7275])
    """
    if not isinstance(predictive, RegressionPredictive):
        return -predictive.log_prob(targets)
    factors = torch.linspace(-LARGEST_NOISE, LARGEST_NOISE, 49).exp().to(predictive.aleatoric)[:, None, None]
    variance = predictive.epistemic + factors * predictive.aleatoric
    squares = (targets - predictive.mean).square() / variance
    nll = 0.5 * (LOG_2PI + variance.log() + squares).sum(-1)  # (F, N)
    return nll[weighted_mean(nll, weights).argmin()]


@torch.no_grad()
def calibrate(
    method: Method, outputs: Float[Tensor, "M N C"], targets: Tensor, weights: Float[Tensor, "N"] | None = None
) -> float:
    """Multiplies the noise variance or temperature by the factor that minimises the validation NLL; returns the factor.

    Golden-section search over the log factor. Labels count as smoothed: where all validation points are classified
    correctly, ever lower temperatures would score better, and no number of points proves certainty.

    Args:
        weights: how many observations each point counts for; None for one each.

    Example:
        >>> outputs = ensemble(data.inputs).detach()
        >>> factor = calibrate(with_likelihood(method, Gaussian(variance=0.1)), outputs, data.targets)
    """
    _check(method, outputs, targets, weights)
    nll = _nll_by_log_factor(method, outputs, targets, weights)
    return _widen(method, _minimum(nll, is_noise=_is_regression(method, outputs)))


@torch.no_grad()
def calibrate_cautiously(
    method: Method, outputs: Float[Tensor, "M N C"], targets: Tensor, weights: Float[Tensor, "N"] | None = None
) -> float:
    """As `calibrate`, but a few validation points change little. N is the sum of the weights.

        noise:        log c = max { t ≤ 0 : N (nll(t) − min nll) ≤ DOUBT²/2 }    where the minimum is at t < 0
        temperature:  as in `likely_temperature`

    The same points have selected the epoch, so their errors are optimistic; the noise learned in training is the better
    estimate unless there are many of them. A noise variance that must rise rises at once.

    Example:
        >>> outputs, targets = torch.zeros(3, 4, 1), torch.full((4, 1), 0.5)
        >>> round(calibrate(with_likelihood(method, Gaussian(variance=1.0)), outputs, targets), 2)
        0.25
        >>> round(calibrate_cautiously(with_likelihood(method, Gaussian(variance=1.0)), outputs, targets), 2)
        1.0
    """
    _check(method, outputs, targets, weights)
    nll = _nll_by_log_factor(method, outputs, targets, weights)
    if not _is_regression(method, outputs):
        return _widen(method, math.log(likely_temperature(nll, _count(targets, weights))))
    best = _minimum(nll, is_noise=True)
    if best < 0:
        allowed = nll(best) + DOUBT**2 / 2 / _count(targets, weights)
        best = _largest(lambda t: nll(t) <= allowed, best, 0.0)
    return _widen(method, best)


def likely_temperature(nll: Callable[[float], float], count: float) -> float:
    """The factor on a temperature that is most likely under a log-normal prior.

    log c = argmin N nll(t) + ½ t² / TEMPERATURE_SPREAD²

    Args:
        nll: the mean NLL of the points by the logarithm t of the factor.
        count: N, how many observations the points count for.

    Example:
        >>> few, many = (likely_temperature(lambda t: (t - 1) ** 2, count) for count in (1.0, 1000.0))
        >>> round(few, 2), round(many, 2)
        (1.4, 2.71)
    """
    doubt = 0.5 / TEMPERATURE_SPREAD**2 / count
    return math.exp(_minimum(lambda t: nll(t) + doubt * t**2, is_noise=False))


def first_within_one_error(nll: Float[Tensor, "V N"]) -> int:
    """The first variant within one standard error of the best, by paired differences; list simpler ones first.

    Example:
        >>> simple, flexible = torch.tensor([0.50, 0.44, 0.50, 0.46]), torch.tensor([0.46, 0.48, 0.47, 0.47])
        >>> first_within_one_error(torch.stack([simple, flexible]))
        0
    """
    difference = nll - nll[int(nll.mean(1).argmin())]
    error = difference.std(1, correction=0) / max(nll.shape[1] - 1, 1) ** 0.5
    return int((difference.mean(1) <= error).nonzero()[0])


def weighted_mean(values: Float[Tensor, "*V N"], weights: Float[Tensor, "N"] | None = None) -> Float[Tensor, "*V"]:
    """Σ w v / Σ w over the points.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0]))
        tensor(1.5000)
    """
    if weights is None:
        return values.mean(-1)
    w = weights.to(values)
    return (values * w).sum(-1) / w.sum()


def smoothed_nll(
    probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"], weights: Float[Tensor, "N"] | None = None
) -> float:
    """The weighted mean of `smoothed_nll_by_point`.

    Example:
        >>> round(smoothed_nll(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1])), 3)
        0.463
    """
    return float(weighted_mean(smoothed_nll_by_point(probabilities, labels, weights), weights))


def smoothed_nll_by_point(
    probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"], weights: Float[Tensor, "N"] | None = None
) -> Float[Tensor, "N"]:
    """−log p(y) per point, where a label is replaced by a random one with probability 1/(N + 1).

    N is the number of points, or the sum of their weights.

    Example:
        >>> smoothed_nll_by_point(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1]))
        tensor([0.4716, 0.4542])
    """
    scores, doubt = probabilities.log(), 1 / (_count(labels, weights) + 1)
    own = scores.gather(1, labels.long()[:, None]).squeeze(1)
    return -(1 - doubt) * own - doubt * scores.mean(1)


def golden_section(function: Callable[[float], float], low: float, high: float, steps: int = 30) -> float:
    """The minimiser of a unimodal function between two numbers.

    Example:
        >>> round(golden_section(lambda x: (x - 2) ** 2, 0.0, 5.0), 3)
        2.0
    """
    ratio = (5**0.5 - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = function(a), function(b)
    for _ in range(steps):
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = function(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = function(b)
    return (low + high) / 2


def _check(method: Method, outputs: Float[Tensor, "M N C"], targets: Tensor, weights: Tensor | None) -> None:
    """Raises ValueError where the points cannot calibrate."""
    _, N, C = outputs.shape
    if not N or len(targets) != N:
        raise ValueError(
            f"calibration needs at least one point, and a target of each, but there are outputs at {N} points and "
            f"{len(targets)} targets; pass the same points in both"
        )
    method.likelihood.check(targets, C)
    method.likelihood.check_values(targets, C)
    if weights is not None:
        check_weights(weights)


def _count(targets: Tensor, weights: Float[Tensor, "N"] | None) -> float:
    """How many observations the points count for."""
    return float(len(targets) if weights is None else weights.sum())


def _nll_by_log_factor(
    method: Method, outputs: Float[Tensor, "M N C"], targets: Tensor, weights: Float[Tensor, "N"] | None
) -> Callable[[float], float]:
    def nll(log_factor: float) -> float:
        widened = with_likelihood(method, copy.deepcopy(method.likelihood))
        _widen(widened, log_factor)
        return _score(_predictive(widened, outputs), targets, weights)

    return nll


def _predictive(method: Method, outputs: Float[Tensor, "M N C"]) -> Predictive:
    generator = torch.Generator(outputs.device).manual_seed(0)  # common random numbers: scores are compared
    return method.predictive(outputs, num_draws=NUM_DRAWS, generator=generator)


def _is_regression(method: Method, outputs: Float[Tensor, "M N C"]) -> bool:
    return isinstance(_predictive(method, outputs), RegressionPredictive)


def _score(predictive: Predictive, targets: Tensor, weights: Float[Tensor, "N"] | None) -> float:
    if isinstance(predictive, ClassPredictive):
        return smoothed_nll(predictive.probabilities, targets, weights)
    if isinstance(predictive, BinaryPredictive):  # each target as two classes
        p, labels = predictive.probabilities.flatten(), targets.long().flatten()
        repeated = None if weights is None else weights.repeat_interleave(targets.shape[1])
        return smoothed_nll(torch.stack([1 - p, p], 1), labels, repeated)
    return -float(weighted_mean(predictive.log_prob(targets), weights))


def _minimum(nll: Callable[[float], float], *, is_noise: bool) -> float:
    largest = LARGEST_NOISE if is_noise else LARGEST_TEMPERATURE
    return golden_section(nll, -largest, largest)


def _widen(method: Method, log_factor: float) -> float:
    factor = math.exp(log_factor)
    method.likelihood.widen(factor)
    return factor


def _largest(holds: Callable[[float], bool], low: float, high: float, steps: int = 30) -> float:
    """The largest number between the two for which a monotone condition holds, by bisection."""
    if holds(high):
        return high
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
