"""Detection and selective prediction: how well one score per point separates positives, or errors, from the rest.

Detection ranks `scores`, the higher the more positive: for out-of-distribution detection, pass an uncertainty and mark
the out-of-distribution points as `positives`. Tied scores form one threshold, as in scikit-learn. Selective prediction
keeps the points of lowest `uncertainty`; `errors` is True for a wrong prediction, or any loss of one point.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp.metrics.checks import aligned, check_at_least, check_boolean, check_fraction

__all__ = [
    "ErrorUncertaintyCurve",
    "RiskCoverageCurve",
    "aupr",
    "aurc",
    "auroc",
    "error_at_coverage",
    "error_versus_uncertainty",
    "fpr_at_recall",
    "risk_coverage_curve",
]


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve:
    """Mean error (`risk`) of the k most certain of N points, and the `coverage` k/N, for k = 1, …, N.

    Example:
        >>> curve = risk_coverage_curve(torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([False, False, False, True]))
        >>> curve.coverage[curve.risk < 0.1].max()
        tensor(0.7500, dtype=torch.float64)
    """

    coverage: Float[Tensor, "N"]
    risk: Float[Tensor, "N"]


@dataclass(frozen=True, eq=False)
class ErrorUncertaintyCurve:
    """For each threshold on the normalised uncertainty, how many points are kept, and their error rate (else NaN).

    Example:
        >>> uncertainty, errors = torch.tensor([0.1, 0.2, 0.8]), torch.tensor([False, False, True])
        >>> curve = error_versus_uncertainty(uncertainty, errors, torch.tensor([0.9, 1.0]), num_thresholds=3)
        >>> curve.kept
        tensor([0, 2, 5])
    """

    threshold: Float[Tensor, "thresholds"]
    error: Float[Tensor, "thresholds"]
    kept: Int[Tensor, "thresholds"]


def auroc(scores: Float[Tensor, "N"], positives: Bool[Tensor, "N"]) -> float:
    """Area under the ROC curve: P(s⁺ > s⁻) + ½ P(s⁺ = s⁻) for a random positive and a random negative.

    Example:
        >>> scores, positives = torch.tensor([0.1, 0.4, 0.3, 0.9]), torch.tensor([False, False, True, True])
        >>> auroc(scores, positives)
        0.75
    """
    true, false = _accepted(scores, positives)
    return (torch.trapezoid(true, false) / (true[-1] * false[-1])).item()


def aupr(scores: Float[Tensor, "N"], positives: Bool[Tensor, "N"]) -> float:
    """Average precision, Σ_k (recall_k − recall_{k−1}) precision_k over descending thresholds, without interpolation.

    Unlike `auroc` it depends on the fraction of positives; report which class was taken as positive.

    Example:
        >>> scores, positives = torch.tensor([0.1, 0.4, 0.3, 0.9]), torch.tensor([False, False, True, True])
        >>> round(aupr(scores, positives), 3)
        0.833
    """
    true, false = _accepted(scores, positives)
    precision = true[1:] / (true[1:] + false[1:])
    return (true.diff() @ precision / true[-1]).item()


def fpr_at_recall(scores: Float[Tensor, "N"], positives: Bool[Tensor, "N"], recall: float = 0.95) -> float:
    """False-positive rate at the highest threshold with a true-positive rate of at least `recall` (FPR95).

    Example:
        >>> scores, positives = torch.tensor([0.1, 0.4, 0.3, 0.9]), torch.tensor([False, False, True, True])
        >>> fpr_at_recall(scores, positives, recall=0.95)
        0.5
    """
    check_fraction("recall", recall)
    true, false = _accepted(scores, positives)
    # compare fractions, not counts: 55/100 is the float 0.55, but 0.55 · 100 > 55
    first = (true / true[-1] < recall).sum()
    return (false[first] / false[-1]).item()


def risk_coverage_curve(
    uncertainty: Float[Tensor, "N"], errors: Bool[Tensor, "N"] | Float[Tensor, "N"]
) -> RiskCoverageCurve:
    """Mean error of the most certain points, as a function of the fraction kept (Geifman and El-Yaniv, 2017).

    risk_k = (1/k) Σ_{i ≤ k} e_(i),  e_(1), …, e_(N) by increasing uncertainty

    Tied points each take the mean of their errors: the expectation over the orders in which they may be kept.

    Example:
        >>> uncertainty, errors = torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([False, False, False, True])
        >>> risk_coverage_curve(uncertainty, errors).risk
        tensor([0.0000, 0.0000, 0.0000, 0.2500], dtype=torch.float64)
    """
    uncertainty, errors = aligned("N", uncertainty=uncertainty, errors=errors)
    _, group, size = uncertainty.unique(return_inverse=True, return_counts=True)
    group_error = errors.new_zeros(len(size)).index_add(0, group, errors) / size
    kept = torch.arange(1, len(errors) + 1, dtype=errors.dtype, device=errors.device)
    return RiskCoverageCurve(kept / len(errors), group_error.repeat_interleave(size).cumsum(0) / kept)


def aurc(uncertainty: Float[Tensor, "N"], errors: Bool[Tensor, "N"] | Float[Tensor, "N"]) -> float:
    """Area under the risk–coverage curve, (1/N) Σ_k risk_k; lower is better, and never 0 while there are errors.

    Example:
        >>> uncertainty, errors = torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([False, False, False, True])
        >>> round(aurc(uncertainty, errors), 3)
        0.062
    """
    return risk_coverage_curve(uncertainty, errors).risk.mean().item()


def error_at_coverage(
    uncertainty: Float[Tensor, "N"], errors: Bool[Tensor, "N"] | Float[Tensor, "N"], coverage: float = 0.8
) -> float:
    """Mean error of the most certain points, the fewest that make up the fraction `coverage` of all.

    Example:
        >>> uncertainty, errors = torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([False, False, False, True])
        >>> error_at_coverage(uncertainty, errors, coverage=0.75)
        0.0
    """
    check_fraction("coverage", coverage)
    curve = risk_coverage_curve(uncertainty, errors)
    return curve.risk[(curve.coverage < coverage).sum()].item()


def error_versus_uncertainty(
    uncertainty: Float[Tensor, "N"],
    errors: Bool[Tensor, "N"],
    ood_uncertainty: Float[Tensor, "ood"],
    *,
    num_thresholds: int = 101,
) -> ErrorUncertaintyCurve:
    """Error among the test and out-of-distribution points of normalised uncertainty at most t, for t from 0 to 1.

    error(t) = Σ e_i 1[u_i ≤ t · max u] / Σ 1[u_i ≤ t · max u],  over both sets pooled

    Every out-of-distribution point counts as an error, e = 1, and should therefore be uncertain. The error is NaN where
    no point is kept. The thresholds are evenly spaced, 0 and 1 included.

    Example:
        >>> uncertainty, errors = torch.tensor([0.1, 0.2, 0.8]), torch.tensor([False, False, True])
        >>> curve = error_versus_uncertainty(uncertainty, errors, torch.tensor([0.9, 1.0]), num_thresholds=3)
        >>> curve.error
        tensor([   nan, 0.0000, 0.6000], dtype=torch.float64)
    """
    check_boolean("errors", errors)
    check_at_least("num_thresholds", num_thresholds, 2)
    uncertainty, errors = aligned("N", uncertainty=uncertainty, errors=errors)
    ood_uncertainty = aligned("N", ood_uncertainty=ood_uncertainty)[0].to(uncertainty.device)
    pooled, order = _normalise(torch.cat([uncertainty, ood_uncertainty])).sort()
    wrong = torch.cat([errors, torch.ones_like(ood_uncertainty)])[order].cumsum(0)
    thresholds = torch.linspace(0, 1, num_thresholds, dtype=pooled.dtype, device=pooled.device)
    kept = torch.searchsorted(pooled, thresholds, right=True)
    error = torch.cat([wrong.new_zeros(1), wrong])[kept] / kept  # 0/0 = NaN
    return ErrorUncertaintyCurve(thresholds, error, kept)


def _accepted(scores: Tensor, positives: Tensor) -> tuple[Float[Tensor, "K"], Float[Tensor, "K"]]:
    """Positives and negatives with a score of at least t, for t = ∞ and then every distinct score, descending."""
    check_boolean("positives", positives)
    scores, positives = aligned("N", scores=scores, positives=positives)
    if positives.min() == positives.max():
        kind = "positive" if positives.all() else "negative"
        raise ValueError(
            f"positives must mark some points and leave others, but all {len(positives)} are {kind}; "
            f"pass both kinds in one call"
        )
    scores, order = scores.sort(descending=True)
    last_of_ties = torch.cat([scores.diff() != 0, scores.new_ones(1, dtype=torch.bool)])
    true = positives[order].cumsum(0)[last_of_ties]
    false = (1 - positives[order]).cumsum(0)[last_of_ties]
    zero = true.new_zeros(1)
    return torch.cat([zero, true]), torch.cat([zero, false])


def _normalise(uncertainty: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """u / max u."""
    if (uncertainty < 0).any() or uncertainty.max() == 0:
        raise ValueError(
            f"uncertainties must be non-negative with a positive maximum to be divided by it, but they range from "
            f"{uncertainty.min():.6g} to {uncertainty.max():.6g}; pass a std, an entropy or a mutual information"
        )
    return uncertainty / uncertainty.max()
