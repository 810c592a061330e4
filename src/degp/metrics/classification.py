"""Scores and calibration of class probabilities p (N, C) against the true classes y (N,).

The predicted class is ŷ = argmax_c p_c, the first one on ties, and its confidence is p_ŷ.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp.metrics.checks import check_at_least, classified, distributions

__all__ = [
    "ReliabilityCurve",
    "accuracy",
    "adaptive_ece",
    "brier",
    "classwise_ece",
    "ece",
    "entropy",
    "nll",
    "reliability_curve",
]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Mean confidence, accuracy and number of points of each confidence bin; the means are NaN in an empty bin.

    Example:
        >>> curve = reliability_curve(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]), num_bins=2)
        >>> curve.count
        tensor([0, 2])
    """

    confidence: Float[Tensor, "bins"]
    accuracy: Float[Tensor, "bins"]
    count: Int[Tensor, "bins"]


def accuracy(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> float:
    """Fraction of the points whose predicted class is the true one.

    Example:
        >>> probabilities, labels = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])
        >>> accuracy(probabilities, labels)
        0.5
    """
    probabilities, labels = classified(probabilities, labels)
    return (probabilities.argmax(-1) == labels).double().mean().item()


def nll(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> float:
    """Negative log-likelihood per point, in nats: −(1/N) Σ_n log p_n,y.

    It is infinite if the true class of any point has probability 0.

    Example:
        >>> probabilities, labels = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])
        >>> round(nll(probabilities, labels), 3)
        0.511
    """
    probabilities, labels = classified(probabilities, labels)
    return -probabilities.gather(-1, labels[:, None]).log().mean().item()


def brier(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> float:
    """Brier score in [0, 2]: (1/N) Σ_n Σ_c (p_nc − 1[y_n = c])².

    Example:
        >>> probabilities, labels = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])
        >>> round(brier(probabilities, labels), 3)
        0.37
    """
    probabilities, labels = classified(probabilities, labels)
    return (probabilities - _one_hot(labels, probabilities)).square().sum(-1).mean().item()


def entropy(probabilities: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    """Entropy of each point's prediction in nats, −Σ_c p_c log p_c with 0 log 0 = 0.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
        tensor([0.6931, 0.0000], dtype=torch.float64)
    """
    return torch.special.entr(distributions(probabilities)).sum(-1)


def ece(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"], num_bins: int = 15) -> float:
    """Expected calibration error of the confidence, over bins of equal width (Guo et al., 2017).

    Σ_b (n_b/N) |accuracy_b − confidence_b|

    The bins are [0, 1/B), …, [(B−1)/B, 1]. A confidence of exactly 1 falls into the last bin; torchmetrics, otherwise
    equal, adds a bin for it.

    Example:
        >>> probabilities, labels = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])
        >>> round(ece(probabilities, labels), 3)
        0.35
    """
    confidence, correct = _top(*classified(probabilities, labels))
    return _calibration_gap(confidence, correct, _equal_width(confidence, num_bins), num_bins)


def adaptive_ece(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"], num_bins: int = 15) -> float:
    """As `ece`, over bins with equal numbers of points (Nixon et al., 2019); equal confidences share a bin.

    Example:
        >>> probabilities, labels = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])
        >>> round(adaptive_ece(probabilities, labels, num_bins=1), 3)
        0.25
    """
    confidence, correct = _top(*classified(probabilities, labels))
    return _calibration_gap(confidence, correct, _equal_count(confidence, num_bins), num_bins)


def classwise_ece(probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"], num_bins: int = 15) -> float:
    """Calibration error of all class probabilities, not only the largest (Kull et al., 2019); bins as in `ece`.

    (1/C) Σ_c Σ_b (n_bc/N) |frequency_bc − probability_bc|, with the points binned by the probability of each class

    Example:
        >>> probabilities, labels = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])
        >>> round(classwise_ece(probabilities, labels), 3)
        0.35
    """
    probabilities, labels = classified(probabilities, labels)
    bins = _equal_width(probabilities, num_bins)
    return _calibration_gap(probabilities, _one_hot(labels, probabilities), bins, num_bins)


def reliability_curve(
    probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"], num_bins: int = 15
) -> ReliabilityCurve:
    """Confidence against accuracy in the bins of `ece`.

    Example:
        >>> probabilities, labels = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1])
        >>> curve = reliability_curve(probabilities, labels, num_bins=2)
        >>> curve.confidence[1], curve.accuracy[1], curve.count[1]
        (tensor(0.7500, dtype=torch.float64), tensor(0.5000, dtype=torch.float64), tensor(2))
    """
    confidence, correct = _top(*classified(probabilities, labels))
    bins = _equal_width(confidence, num_bins)
    count, confidence, correct = (
        _bin_sums(values, bins, num_bins)[:, 0] for values in (torch.ones_like(confidence), confidence, correct)
    )
    return ReliabilityCurve(confidence / count, correct / count, count.long())  # 0/0 = NaN


def _top(
    probabilities: Float[Tensor, "N C"], labels: Int[Tensor, "N"]
) -> tuple[Float[Tensor, "N 1"], Float[Tensor, "N 1"]]:
    """Confidence of the predicted class, and 1 where it is the true one, else 0."""
    confidence, predicted = probabilities.max(-1, keepdim=True)
    return confidence, (predicted == labels[:, None]).to(confidence)


def _one_hot(labels: Int[Tensor, "N"], probabilities: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return torch.zeros_like(probabilities).scatter(-1, labels[:, None], 1.0)


def _equal_width(confidence: Float[Tensor, "N C"], num_bins: int) -> Int[Tensor, "N C"]:
    check_at_least("num_bins", num_bins, 1)
    # b/B is correctly rounded, so that a confidence of 0.3 equals the edge 3/10; linspace gives 0.30000000000000004
    edges = torch.arange(1, num_bins, dtype=confidence.dtype, device=confidence.device) / num_bins
    return torch.bucketize(confidence, edges, right=True)


def _equal_count(confidence: Float[Tensor, "N 1"], num_bins: int) -> Int[Tensor, "N 1"]:
    """Bin b begins at the ⌊Nb/B⌋-th smallest confidence (counted from 0)."""
    check_at_least("num_bins", num_bins, 1)
    N = len(confidence)
    begins = [N * b // num_bins for b in range(1, num_bins)]
    edges = confidence.flatten().sort().values[begins]
    return torch.bucketize(confidence, edges, right=True)


def _calibration_gap(
    confidence: Float[Tensor, "N C"], outcome: Float[Tensor, "N C"], bins: Int[Tensor, "N C"], num_bins: int
) -> float:
    """(1/C) Σ_c Σ_b (n_bc/N) |mean outcome − mean confidence|, with the n_bc cancelled: (1/NC) Σ_cb |Σ_n∈b (o − p)|."""
    return _bin_sums(outcome - confidence, bins, num_bins).abs().sum().item() / confidence.numel()


def _bin_sums(values: Float[Tensor, "N C"], bins: Int[Tensor, "N C"], num_bins: int) -> Float[Tensor, "bins C"]:
    return values.new_zeros(num_bins, values.shape[1]).scatter_add(0, bins, values)
