"""Out-of-distribution (OOD) detection by uncertainty, and the error of predictions below a level of uncertainty."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp import metrics
from degp.metrics import ErrorUncertaintyCurve
from degp.predictive import ClassPredictive

__all__ = ["error_curve", "ood_scores"]

THRESHOLDS = (0.05, 0.1, 0.2)  # of the mutual information, as fractions of its largest value
COVERAGES = (0.05, 0.1, 0.2, 0.5)


def ood_scores(
    test: ClassPredictive,
    labels: Int[Tensor, "N"],
    ood: ClassPredictive,
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    coverages: Sequence[float] = COVERAGES,
) -> dict[str, float]:
    """How well uncertainty distinguishes test points from OOD points, which are the positive class.

    `auroc_`, `aupr_` and `fpr95_` by mutual information (`mi`), entropy and 1 − largest probability (`maxprob`). And
    the error rate of accepted points, test and OOD points pooled with every OOD point counted as an error:
    `error_mi_10` accepts a mutual information of at most 10 % of its largest value, NaN where none is accepted;
    `error_coverage_10` accepts the 10 % of points with the lowest.
    """
    pooled = {name: torch.cat([value, _uncertainties(ood)[name]]) for name, value in _uncertainties(test).items()}
    is_ood = torch.arange(len(pooled["mi"]), device=labels.device) >= len(labels)
    scores = {}
    for name, values in pooled.items():
        scores[f"auroc_{name}"] = metrics.auroc(values, is_ood)
        scores[f"aupr_{name}"] = metrics.aupr(values, is_ood)
        scores[f"fpr95_{name}"] = metrics.fpr_at_recall(values, is_ood, 0.95)
    wrong = torch.cat([_errors(test, labels), is_ood[len(labels) :]])
    for threshold in thresholds:
        accepted = pooled["mi"] <= threshold * pooled["mi"].max()
        scores[f"error_mi_{_percent(threshold)}"] = wrong[accepted].double().mean().item()
    for coverage in coverages:
        scores[f"error_coverage_{_percent(coverage)}"] = metrics.error_at_coverage(pooled["mi"], wrong, coverage)
    return scores


def error_curve(test: ClassPredictive, labels: Int[Tensor, "N"], ood: ClassPredictive) -> ErrorUncertaintyCurve:
    """Error rate of accepted points against the threshold on normalised mutual information; OOD points are errors.

    Example:
        >>> outputs = torch.tensor([[[4.0, 0.0], [4.0, 0.0]], [[4.0, 0.0], [0.0, 4.0]]])  # two members, two images
        >>> test, ood = (Categorical().mixture(outputs[:, n : n + 1]) for n in range(2))
        >>> error_curve(test, torch.tensor([0]), ood).error[[50, 100]]  # up to 50 % and 100 % of the largest
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """
    return metrics.error_versus_uncertainty(
        _uncertainties(test)["mi"], _errors(test, labels), _uncertainties(ood)["mi"]
    )


def _uncertainties(predictive: ClassPredictive) -> dict[str, Float[Tensor, "N"]]:
    return {
        "mi": predictive.epistemic.clamp_min(0),  # rounding may leave it slightly negative
        "entropy": predictive.total,
        "maxprob": 1 - predictive.probabilities.amax(-1),
    }


def _errors(predictive: ClassPredictive, labels: Int[Tensor, "N"]) -> Bool[Tensor, "N"]:
    return predictive.labels != labels


def _percent(fraction: float) -> int:
    return round(100 * fraction)
