"""A method's prediction from members' outputs, and the noise or temperature that validation data like best."""

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp.likelihoods import LOG_2PI, Likelihood
from degp.objectives import FunctionalObjective
from degp.posterior import PointwiseAverage, posterior
from degp.side_by_side import Variant
from degp.uncertainty import ClassPredictive, Predictive, RegressionPredictive

# of |log factor|: a noise variance may have been taken from a fit without errors, a temperature is known to a factor
LARGEST_NOISE, LARGEST_TEMPERATURE = 12.0, 3.0
DOUBT = 2.0  # standard errors by which the data must ask for less noise


def predictive_of(
    variant: Variant, outputs: Float[Tensor, "M N C"], likelihood: Likelihood, *, num_draws: int = 256
) -> Predictive:
    """The prediction as the variant's method makes it: a Gaussian process for DE-GP, a mixture for the others."""
    if isinstance(variant, FunctionalObjective):
        q = posterior(outputs, diagonal=PointwiseAverage(variant.nugget.epsilon))
        generator = torch.Generator(outputs.device).manual_seed(0)  # the same draws each time: scores are compared
        return likelihood.predictive(q, num_draws=num_draws, generator=generator)
    return likelihood.mixture(outputs)


def log_prob(predictive: Predictive, targets: Tensor) -> Float[Tensor, "N"]:
    """log p(y) of each point."""
    assert isinstance(predictive, (RegressionPredictive, ClassPredictive))
    return predictive.log_prob(targets)


def calibrated_nll(predictive: Predictive, targets: Tensor) -> Float[Tensor, "N"]:
    """−log p(y) of each point as after `calibrate`, but for the width of a grid; of classes as it is.

    While the noise variance is being learned it runs ahead of the fit or behind it. What is delivered is calibrated, so
    that is what an epoch should be judged by.
    """
    if not isinstance(predictive, RegressionPredictive):
        return -log_prob(predictive, targets)
    factors = torch.linspace(-LARGEST_NOISE, LARGEST_NOISE, 49).exp().to(predictive.aleatoric)[:, None, None]
    variance = predictive.epistemic + factors * predictive.aleatoric
    squares = (targets - predictive.mean).square() / variance
    nll = 0.5 * (LOG_2PI + variance.log() + squares).sum(-1)  # (F, N)
    return nll[nll.mean(1).argmin()]


@torch.no_grad()
def calibrate(likelihood: Likelihood, variant: Variant, outputs: Float[Tensor, "M N C"], targets: Tensor) -> float:
    """Multiplies the noise variance or the temperature by the factor that the validation data like best.

    Golden-section search over the log factor; gives back the factor. Labels count as smoothed: where all
    validation rows are right, ever lower temperatures would look better, and no number of rows proves certainty.
    """
    nll = _by_log_factor(likelihood, variant, outputs, targets)
    return _widen(likelihood, _best(nll, is_noise=_is_noise(likelihood, variant, outputs)))


@torch.no_grad()
def calibrate_with_care(
    likelihood: Likelihood, variant: Variant, outputs: Float[Tensor, "M N C"], targets: Tensor
) -> float:
    """As `calibrate`, but a noise variance is lowered only as far as the validation data insist.

        log c = max { t ≤ 0 : N (nll(t) − min nll) ≤ DOUBT²/2 }    where the minimum is at t < 0

    These rows have also chosen the epoch and α, so their errors are among the smaller ones; what training has learned
    of the noise is the better guess unless there are many of them. A variance that must rise rises at once.
    """
    nll = _by_log_factor(likelihood, variant, outputs, targets)
    is_noise = _is_noise(likelihood, variant, outputs)
    best = _best(nll, is_noise=is_noise)
    if is_noise and best < 0:
        allowed = nll(best) + DOUBT**2 / 2 / len(targets)
        best = _largest(lambda t: nll(t) <= allowed, best, 0.0)
    return _widen(likelihood, best)


def _by_log_factor(
    likelihood: Likelihood, variant: Variant, outputs: Float[Tensor, "M N C"], targets: Tensor
) -> Callable[[float], float]:
    def nll(log_factor: float) -> float:
        widened = copy.deepcopy(likelihood)
        _widen(widened, log_factor)
        return _smoothed_nll(predictive_of(variant, outputs, widened), targets)

    return nll


def _is_noise(likelihood: Likelihood, variant: Variant, outputs: Float[Tensor, "M N C"]) -> bool:
    return isinstance(predictive_of(variant, outputs, likelihood), RegressionPredictive)


def _best(nll: Callable[[float], float], *, is_noise: bool) -> float:
    largest = LARGEST_NOISE if is_noise else LARGEST_TEMPERATURE
    return golden_section(nll, -largest, largest)


def _widen(likelihood: Likelihood, log_factor: float) -> float:
    factor = float(torch.tensor(log_factor).exp())
    likelihood.widen(factor)
    return factor


def _smoothed_nll(predictive: Predictive, targets: Tensor) -> float:
    if isinstance(predictive, ClassPredictive) and not targets.is_floating_point():
        return smoothed_nll(predictive.probabilities, targets)
    return float(-log_prob(predictive, targets).mean())


def smoothed_nll(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> float:
    """The mean of `smoothed_nll_by_point`."""
    return float(smoothed_nll_by_point(probabilities, labels).mean())


def smoothed_nll_by_point(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """−log p(y) of each point, where a label is any label with probability 1/(N + 1)."""
    scores, doubt = probabilities.log(), 1 / (len(labels) + 1)
    own = scores.gather(1, labels.long()[:, None]).squeeze(1)
    return -(1 - doubt) * own - doubt * scores.mean(1)


def _largest(holds: Callable[[float], bool], low: float, high: float, steps: int = 30) -> float:
    """The largest number between the two for which it holds, if it does up to there and no further."""
    if holds(high):
        return high
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def golden_section(function: Callable[[float], float], low: float, high: float, steps: int = 30) -> float:
    """Where a function of one number is least, if it has one valley between the two."""
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
