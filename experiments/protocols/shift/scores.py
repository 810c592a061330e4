"""Scores of a trained ensemble in distribution, under shift, and on out-of-distribution images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import mean
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp import metrics
from degp.vision import Calibrated, Trained, class_scores, ood_scores
from experiments.data.corruptions import CORRUPTIONS, corrupt
from experiments.data.corruptions_bar import CORRUPTIONS_BAR, corrupt_bar
from experiments.protocols.assessment import assess
from experiments.protocols.image_runs import Evaluation, evaluate_curves
from experiments.protocols.shift.sets import Images, ShiftSets, validation_shifts

COVERAGES = (0.5, 0.8, 0.9, 0.95)
DETECTED = ("auroc", "fpr95")  # of `ood_scores`, for each OOD set
SEVERITIES = (1, 2, 3, 4, 5)
CORRUPTED = ("accuracy", "nll", "ece", "nll_unfitted", "ece_unfitted")


@dataclass(frozen=True)
class CorruptedImages:
    """The test images under each corruption and severity, made once and kept where they were made.

    Attributes:
        types: of corruption; frost needs `overlays`, and is omitted without them.
        overlays: of frost.
    """

    types: Sequence[str] = CORRUPTIONS
    severities: Sequence[int] = SEVERITIES
    overlays: Sequence[Tensor] | None = None
    kept: dict[tuple[str, int], Images] = field(default_factory=dict)

    def of(self, images: Images) -> Iterator[tuple[str, int, Images]]:
        """(type, severity, images), always of the same test images."""
        for name, severity in product(self.types, self.severities):
            if name == "frost" and self.overlays is None:
                continue
            if (name, severity) not in self.kept:
                generator = torch.Generator(images.device).manual_seed(0)
                overlays = self.overlays
                self.kept[name, severity] = corrupt(images, name, severity, generator=generator, overlays=overlays)
            yield name, severity, self.kept[name, severity]


@dataclass(frozen=True)
class OnValidation:
    """Scores to choose by; test images, their corruptions and the OOD sets to report are not looked at."""

    def __call__(self, trained: Trained, sets: ShiftSets) -> Evaluation:
        _, scores = chosen_by(trained, sets)
        return Evaluation(scores, evaluate_curves(trained))


@dataclass(frozen=True)
class OnEverything:
    """Scores to choose by and to report; each row of the corruptions is also passed to `keep`."""

    corrupted: CorruptedImages
    keep: Callable[[list[dict[str, Any]]], None]

    def __call__(self, trained: Trained, sets: ShiftSets) -> Evaluation:
        calibrated, scores = chosen_by(trained, sets)
        assessment = assess(trained, sets, calibrated=calibrated)
        test = trained.outputs(sets.test.inputs)
        scores |= assessment.scores | _selective(calibrated, test, sets) | _detection(calibrated, trained, test, sets)
        labels = sets.test.targets
        by_image, rows, corrupted = by_point(calibrated.one_temperature(test).probabilities, labels), [], []
        for name, severity, images in self.corrupted.of(sets.test.inputs):
            outputs = trained.outputs(images, progress=False)
            rows.append({"corruption": name, "severity": severity, **calibrated.scores(outputs, labels)})
            corrupted.append(by_point(calibrated.one_temperature(outputs).probabilities, labels))
        self.keep(rows)
        if rows:
            scores |= {f"{name}_corrupted": mean(row[name] for row in rows) for name in CORRUPTED}
            by_image |= {f"{name}_corrupted": torch.stack([c[name] for c in corrupted]).mean(0) for name in by_image}
        return Evaluation(scores, evaluate_curves(trained, assessment.error_curve), by_image)


def by_point(p: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> dict[str, Float[Tensor, "N"]]:
    """`nll` in nats, and `accuracy`, 0 or 1, of each point."""
    own = p.gather(1, labels.long()[:, None]).squeeze(1)
    return {"nll": -own.log(), "accuracy": (p.argmax(1) == labels).to(p)}


def chosen_by(trained: Trained, sets: ShiftSets) -> tuple[Calibrated, dict[str, float]]:
    """Temperatures fitted on the validation images, and the scores on these, on their shifts, and on other OOD images.

    `nll_validation`, `accuracy_validation`, `ece_validation`, `nll_validation_unfitted`; `nll_shifted`,
    `accuracy_shifted`, their means over `validation_shifts`, and each one's `nll_shifted_<name>`; `nll_cbar`,
    `accuracy_cbar` and `nll_cbar_<name>`, likewise of CIFAR-10-C̄; `auroc_validation_<set>_<score>`, and `fpr95_…`.
    """
    labels, outputs = sets.validation.targets, trained.outputs(sets.validation.inputs)
    calibrated = Calibrated.fitted(trained.method, outputs, labels)
    own = calibrated.scores(outputs, labels)
    scores = {f"{name}_validation": own[name] for name in ("accuracy", "nll", "ece")}
    scores |= {"nll_validation_unfitted": own["nll_unfitted"], "nll_validation_calibrated": own["nll_calibrated"]}
    shifted = {
        name: class_scores(calibrated.one_temperature(trained.outputs(images)).probabilities, labels)
        for name, images in validation_shifts(sets.validation.inputs).items()
    }
    for score in ("nll", "accuracy"):
        scores[f"{score}_shifted"] = mean(each[score] for each in shifted.values())
    scores |= {f"nll_shifted_{name}": each["nll"] for name, each in shifted.items()}
    scores |= _on_cbar(calibrated, trained, sets)
    for name, images in sets.ood_validation.items():
        found = _detected(calibrated, outputs, labels, trained.outputs(images))
        scores |= {key.replace("_", f"_validation_{name}_", 1): value for key, value in found.items()}
    return calibrated, scores


def _on_cbar(calibrated: Calibrated, trained: Trained, sets: ShiftSets) -> dict[str, float]:
    """Means over types and severities of CIFAR-10-C̄, whose corruptions are unlike those that are reported."""
    images, labels = sets.validation.inputs, sets.validation.targets
    found: dict[str, list[dict[str, float]]] = {}
    for name, severity in product(CORRUPTIONS_BAR, SEVERITIES):
        corrupted = corrupt_bar(images, name, severity, generator=torch.Generator(images.device).manual_seed(0))
        outputs = trained.outputs(corrupted, progress=False)
        found.setdefault(name, []).append(class_scores(calibrated.one_temperature(outputs).probabilities, labels))
    rows = [row for each in found.values() for row in each]
    means = {f"{score}_cbar": mean(row[score] for row in rows) for score in ("nll", "accuracy")}
    return means | {f"nll_cbar_{name}": mean(row["nll"] for row in each) for name, each in found.items()}


def _detection(
    calibrated: Calibrated, trained: Trained, test: Float[Tensor, "M N C"], sets: ShiftSets
) -> dict[str, float]:
    """`auroc_<set>_<score>` and `fpr95_<set>_<score>` of every OOD set."""
    scores: dict[str, float] = {}
    for name, images in sets.all_ood.items():
        found = _detected(calibrated, test, sets.test.targets, trained.outputs(images))
        scores |= {key.replace("_", f"_{name}_", 1): value for key, value in found.items()}
    return scores


def _detected(
    calibrated: Calibrated, familiar: Float[Tensor, "M N C"], labels: Tensor, ood: Float[Tensor, "M K C"]
) -> dict[str, float]:
    predict = calibrated.one_temperature
    found = ood_scores(predict(familiar), labels, predict(ood))
    return {key: value for key, value in found.items() if key.startswith(DETECTED)}


def _selective(calibrated: Calibrated, test: Float[Tensor, "M N C"], sets: ShiftSets) -> dict[str, float]:
    """`risk_coverage_80`: the error rate of the 80 % of test images with the lowest entropy."""
    predictive = calibrated.one_temperature(test)
    wrong = predictive.labels != sets.test.targets
    return {
        f"risk_coverage_{round(100 * coverage)}": metrics.error_at_coverage(predictive.total, wrong, coverage)
        for coverage in COVERAGES
    }
