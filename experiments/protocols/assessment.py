"""Scores of a trained ensemble: in distribution, on out-of-distribution images, and by ensemble size."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from degp.metrics import ErrorUncertaintyCurve
from degp.vision import Calibrated, TemperatureScaled, Trained, class_scores, error_curve, ood_scores
from experiments.protocols.image_sets import ImageSets


@dataclass(frozen=True)
class Assessment:
    """Scores by name, and the error against the uncertainty where there are out-of-distribution images."""

    scores: dict[str, float]
    error_curve: ErrorUncertaintyCurve | None


def assess(
    trained: Trained, sets: ImageSets, *, calibrated: Calibrated | None = None, batch_size: int | None = None
) -> Assessment:
    """Scores on the test images, at temperatures fitted on the validation images.

    `accuracy`, `nll`, `ece`; `nll_unfitted` and `ece_unfitted` uncalibrated, at the temperature of training;
    `nll_calibrated` and `ece_calibrated` by `TwoTemperatures`, which are `temperature_functions` and
    `temperature_average`; `accuracy_validation` and `nll_validation`, for model selection; `member_accuracy`, the
    members' mean; `constant_share`; `temperature` and `temperature_trained`; and `ood_scores`.

    Args:
        calibrated: at temperatures that are fitted already.
    """
    validation, test = (trained.outputs(part.inputs, batch_size=batch_size) for part in (sets.validation, sets.test))
    labels = sets.test.targets
    calibrated = calibrated or Calibrated.fitted(trained.method, validation, sets.validation.targets)
    predict = calibrated.one_temperature
    held_out = class_scores(predict(validation).probabilities, sets.validation.targets)
    scores = calibrated.scores(test, labels) | {
        "accuracy_validation": held_out["accuracy"],
        "nll_validation": held_out["nll"],
        "member_accuracy": _member_accuracy(test, labels),
        "constant_share": constant_share(test),
        "temperature": predict.temperature,
        "temperature_trained": calibrated.uncalibrated.temperature,
        "temperature_functions": calibrated.two_temperatures.functions.temperature,
        "temperature_average": calibrated.two_temperatures.average.temperature,
    }
    if sets.ood is None:
        return Assessment(scores, None)
    familiar, ood = predict(test), predict(trained.outputs(sets.ood.inputs, batch_size=batch_size))
    return Assessment(scores | ood_scores(familiar, labels, ood), error_curve(familiar, labels, ood))


def by_size(trained: Trained, sets: ImageSets, *, batch_size: int | None = None) -> list[dict[str, int | float]]:
    """`size`, accuracy, NLL and ECE of the first 1, 2, …, M members, which were trained together.

    Each size has its own temperature, fitted on the validation images.
    """
    uncalibrated = TemperatureScaled(trained.method)
    validation, test = (trained.outputs(part.inputs, batch_size=batch_size) for part in (sets.validation, sets.test))
    rows: list[dict[str, int | float]] = []
    for size in range(1, len(trained.ensemble) + 1):
        predict = uncalibrated.fitted(validation[:size], sets.validation.targets)
        rows.append({"size": size, **class_scores(predict(test[:size]).probabilities, sets.test.targets)})
    return rows


def constant_share(outputs: Float[Tensor, "M N C"]) -> float:
    """Σ_c Var_i[f̄ᵢ_c] / Σ_c (1/N) Σ_n Var_i[fᵢ_c(x_n)], f̄ᵢ the mean over images: the uninformative share of variance.

    Members that differ by the same offset on every image are equally uncertain of all. NaN where members are equal.
    """
    f = outputs.double()
    return (f.mean(1).var(0).sum() / f.var(0).mean(0).sum()).item()


def _member_accuracy(outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> float:
    return (outputs.argmax(-1) == labels).double().mean().item()
