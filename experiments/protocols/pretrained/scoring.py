"""Scores of functions on features: in distribution, under shift, and on out-of-distribution points."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from degp import metrics
from degp.likelihoods import Categorical
from degp.methods import Method, de
from degp.predictive import ClassPredictive
from degp.typing import Batch
from degp.vision import Calibrated, TemperatureScaled
from degp.vision.temperature import class_scores
from experiments.protocols.pretrained.sets import FeatureSets

__all__ = ["Functions", "detection_scores", "scores"]

CHUNK = 10_000  # points at a time
Outputs = Callable[[Float[Tensor, "N D"]], Float[Tensor, "M N C"]]


@dataclass(frozen=True)
class Functions:
    """Members, or draws from a posterior, as a function of points; the same ones at every call.

    Attributes:
        outputs: from points to logits.
        sets: the points, in the form that `outputs` takes.
        method: how the outputs are read; a mixture for draws.
    """

    outputs: Outputs
    sets: FeatureSets
    method: Method

    @classmethod
    def draws(cls, outputs: Outputs, sets: FeatureSets) -> "Functions":
        """Of draws from a posterior, or of a single network."""
        return cls(outputs, sets, de(Categorical()))

    @torch.no_grad()
    def __call__(self, points: Float[Tensor, "N D"]) -> Float[Tensor, "M N C"]:
        return torch.cat([self.outputs(piece) for piece in points.split(CHUNK)], dim=1)


def scores(functions: Functions) -> dict[str, Any]:
    """All scores at one temperature fitted on the validation points; NLL and ECE also uncalibrated and by two.

    `accuracy`, `nll`, `ece`, `nll_unfitted`, `nll_calibrated`, `nll_validation`, `temperature`, the same of the shifted
    points, and `auroc` and `fpr95` per set of OOD points by mutual information and by entropy.
    """
    sets = functions.sets
    validation = functions(sets.validation.inputs)
    calibrated = Calibrated.fitted(functions.method, validation, sets.validation.targets)
    predict = calibrated.one_temperature
    held_out = class_scores(predict(validation).probabilities, sets.validation.targets)
    found: dict[str, Any] = calibrated.scores(functions(sets.test.inputs), sets.test.targets)
    found |= {"nll_validation": held_out["nll"], "temperature": predict.temperature}
    found |= _shifted(functions, predict, sets.shifted, sets.shift)
    test = predictive(functions, predict, sets.test.inputs)
    for name, points in sets.ood.items():
        ood = predictive(functions, predict, points)
        found |= _detection(f"{name}_entropy", test.total, ood.total)
        if len(validation) > 1:  # a single function has no mutual information
            found |= _detection(f"{name}_mi", test.epistemic, ood.epistemic)
    return found


def detection_scores(score: Callable[[Float[Tensor, "N D"]], Float[Tensor, "N"]], sets: FeatureSets) -> dict[str, Any]:
    """`auroc` and `fpr95` per set of OOD points by a score that is higher for strange points."""
    found: dict[str, Any] = {}
    for name, points in sets.ood.items():
        found |= _detection(f"{name}_score", _pieces(score, sets.test.inputs), _pieces(score, points))
    return found


def predictive(functions: Functions, predict: TemperatureScaled, points: Float[Tensor, "N D"]) -> ClassPredictive:
    """At the fitted temperature, some points at a time."""
    return ClassPredictive.concatenate([predict(functions(piece)) for piece in points.split(CHUNK)])


def _shifted(functions: Functions, predict: TemperatureScaled, points: Batch, name: str) -> dict[str, float]:
    found = class_scores(predictive(functions, predict, points.inputs).probabilities, points.targets)
    return {f"{score}_{name}": value for score, value in found.items()}


def _detection(name: str, familiar: Float[Tensor, "N"], strange: Float[Tensor, "K"]) -> dict[str, float]:
    pooled = torch.cat([familiar, strange])
    is_ood = torch.arange(len(pooled), device=pooled.device) >= len(familiar)
    return {
        f"auroc_{name}": metrics.auroc(pooled, is_ood),
        f"fpr95_{name}": metrics.fpr_at_recall(pooled, is_ood, 0.95),
    }


@torch.no_grad()
def _pieces(score: Callable[[Tensor], Tensor], points: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
    return torch.cat([score(piece) for piece in points.split(CHUNK)])
