"""A trained ensemble's scores: in distribution, against foreign images, and with fewer members."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from degp.imaging.detection import error_curve, ood_scores
from degp.imaging.reading import Reading, Readings, class_scores
from degp.imaging.sets import ImageSets
from degp.imaging.training import Trained
from degp.metrics import ErrorUncertaintyCurve
from degp.typing import Batch


@dataclass(frozen=True)
class Assessment:
    """Scores by name, and the error against the uncertainty where there are foreign images."""

    scores: dict[str, float]
    error_curve: ErrorUncertaintyCurve | None


def assess(trained: Trained, sets: ImageSets, *, batch_size: int | None = None) -> Assessment:
    """Scores on the test images after each method's temperature is fitted on the validation images.

    `accuracy`, `nll`, `ece`; `nll_unfitted` and `ece_unfitted` at the temperature as training left it; `nll_calibrated`
    and `ece_calibrated` with a temperature for the functions and one for their average, `temperature_functions` and
    `temperature_average`; `accuracy_validation` and `nll_validation`, to choose by; `member_accuracy`, the members'
    mean; `constant_share`; `temperature` and `temperature_trained`; and `ood_scores`.
    """
    validation, test = (trained.outputs(part.inputs, batch_size=batch_size) for part in (sets.validation, sets.test))
    labels = sets.test.targets
    read = Readings.on(Reading(trained.objective, trained.likelihood), validation, sets.validation.targets)
    held_out = class_scores(read.fitted(validation).probabilities, sets.validation.targets)
    scores = read.scores(test, labels) | {
        "accuracy_validation": held_out["accuracy"],
        "nll_validation": held_out["nll"],
        "member_accuracy": _member_accuracy(test, labels),
        "constant_share": constant_share(test),
        "temperature": read.fitted.likelihood.temperature.item(),
        "temperature_trained": read.plain.likelihood.temperature.item(),
        "temperature_functions": read.two.functions.likelihood.temperature.item(),
        "temperature_average": read.two.average.temperature,
    }
    if sets.ood is None:
        return Assessment(scores, None)
    prediction, foreign = read.fitted(test), read.fitted(trained.outputs(sets.ood.inputs, batch_size=batch_size))
    return Assessment(scores | ood_scores(prediction, labels, foreign), error_curve(prediction, labels, foreign))


def readings(trained: Trained, validation: Batch, *, batch_size: int | None = None) -> Readings:
    """How to read the members' outputs on new images, with temperatures fitted on these."""
    outputs = trained.outputs(validation.inputs, batch_size=batch_size)
    return Readings.on(Reading(trained.objective, trained.likelihood), outputs, validation.targets)


def by_size(trained: Trained, sets: ImageSets, *, batch_size: int | None = None) -> list[dict[str, int | float]]:
    """`size`, accuracy, NLL and ECE of the first 1, 2, …, M of the members, which were trained together.

    Each size has its own temperature, fitted on the validation images.
    """
    plain = Reading(trained.objective, trained.likelihood)
    validation, test = (trained.outputs(part.inputs, batch_size=batch_size) for part in (sets.validation, sets.test))
    rows: list[dict[str, int | float]] = []
    for size in range(1, len(trained.ensemble) + 1):
        reading = plain.fitted(validation[:size], sets.validation.targets)
        rows.append({"size": size, **class_scores(reading(test[:size]).probabilities, sets.test.targets)})
    return rows


def constant_share(outputs: Float[Tensor, "M N C"]) -> float:
    """Σ_c Var_i[f̄ᵢ_c] / Σ_c (1/N) Σ_n Var_i[fᵢ_c(x_n)], f̄ᵢ the mean over images: how much of the spread says nothing.

    Members that differ by the same amount on every image are as unsure of one as of another. NaN where they are equal.
    """
    f = outputs.double()
    return (f.mean(1).var(0).sum() / f.var(0).mean(0).sum()).item()


def _member_accuracy(outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> float:
    return (outputs.argmax(-1) == labels).double().mean().item()
