"""Whether uncertainty tells foreign images from familiar ones, and which predictions to trust."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp import metrics
from degp.metrics import ErrorUncertaintyCurve
from degp.uncertainty import ClassPredictive

THRESHOLDS = (0.05, 0.1, 0.2)  # of the mutual information, as a share of its largest value
COVERAGES = (0.05, 0.1, 0.2, 0.5)


def ood_scores(
    inside: ClassPredictive,
    labels: Int[Tensor, "N"],
    outside: ClassPredictive,
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    coverages: Sequence[float] = COVERAGES,
) -> dict[str, float]:
    """How well uncertainty tells test points from foreign ones, which are the positive class.

    `auroc_`, `aupr_` and `fpr95_` by mutual information (`mi`), entropy and 1 − largest probability (`maxprob`). And
    the error of what is kept, test and foreign points pooled with all foreign ones counted as wrong: `error_mi_10` at
    a mutual information of at most 10 % of its largest value, NaN where nothing is kept; `error_coverage_10` of the
    10 % with the least of it.
    """
    kinds = {name: torch.cat([_uncertainties(p)[name] for p in (inside, outside)]) for name in _uncertainties(inside)}
    foreign = torch.arange(len(kinds["mi"]), device=labels.device) >= len(labels)
    scores = {}
    for kind, values in kinds.items():
        scores[f"auroc_{kind}"] = metrics.auroc(values, foreign)
        scores[f"aupr_{kind}"] = metrics.aupr(values, foreign)
        scores[f"fpr95_{kind}"] = metrics.fpr_at_recall(values, foreign, 0.95)
    wrong = torch.cat([_errors(inside, labels), foreign[len(labels) :]])
    for threshold in thresholds:
        kept = kinds["mi"] <= threshold * kinds["mi"].max()
        scores[f"error_mi_{_percent(threshold)}"] = wrong[kept].double().mean().item()
    for coverage in coverages:
        scores[f"error_coverage_{_percent(coverage)}"] = metrics.error_at_coverage(kinds["mi"], wrong, coverage)
    return scores


def error_curve(inside: ClassPredictive, labels: Int[Tensor, "N"], outside: ClassPredictive) -> ErrorUncertaintyCurve:
    """Error of what is kept against the threshold on the normalised mutual information; foreign points are wrong."""
    familiar, foreign = (_uncertainties(p)["mi"] for p in (inside, outside))
    return metrics.error_versus_uncertainty(familiar, _errors(inside, labels), foreign)


def _uncertainties(predictive: ClassPredictive) -> dict[str, Float[Tensor, "N"]]:
    return {
        "mi": predictive.epistemic.clamp_min(0),  # rounding may leave it just below
        "entropy": predictive.total,
        "maxprob": 1 - predictive.probabilities.amax(-1),
    }


def _errors(predictive: ClassPredictive, labels: Int[Tensor, "N"]) -> Bool[Tensor, "N"]:
    return predictive.labels != labels


def _percent(share: float) -> int:
    return round(100 * share)
