"""A trained ensemble on corrupted test images, by type and severity."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from degp.data.corruptions import CORRUPTIONS, corrupt
from degp.imaging.reading import Reading, TwoTemperatures, class_scores, named
from degp.imaging.sets import ImageSets
from degp.imaging.training import Trained
from degp.typing import Batch


def corruption_table(
    trained: Trained,
    sets: ImageSets,
    *,
    types: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    overlays: Sequence[UInt8[Tensor, "3 _ _"]] | None = None,
    seed: int = 0,
    batch_size: int = 500,
) -> list[dict[str, Any]]:
    """A row with `corruption`, `severity` and scores for each; the first is of clean images, at severity 0.

    The temperature is fitted on clean validation images; `nll_unfitted` and `ece_unfitted` are without,
    `nll_calibrated` and `ece_calibrated` by `TwoTemperatures`. The same seed makes the same images for every ensemble,
    one set at a time in memory.

    Args:
        overlays: the ice of frost, see `frost_overlays`; frost is left out where there are none.
    """
    plain = Reading(trained.objective, trained.likelihood)
    validation = trained.outputs(sets.validation.inputs, batch_size=batch_size)
    fitted = plain.fitted(validation, sets.validation.targets)
    two = TwoTemperatures.fitted(plain, validation, sets.validation.targets)

    def row(name: str, severity: int, images: Batch) -> dict[str, Any]:
        outputs = trained.outputs(images.inputs, batch_size=batch_size)
        read = (fitted(outputs).probabilities, plain(outputs).probabilities, two(outputs))
        scores, before, calibrated = (class_scores(p, images.targets) for p in read)
        extra = named("unfitted", before) | named("calibrated", calibrated)
        return {"corruption": name, "severity": severity, **scores, **extra}

    rows = [row("none", 0, sets.test)]
    for name in types:
        if name == "frost" and overlays is None:
            continue
        for severity in severities:
            generator = torch.Generator(sets.test.inputs.device).manual_seed(seed)
            images = corrupt(sets.test.inputs, name, severity, generator=generator, overlays=overlays)
            rows.append(row(name, severity, Batch(images, sets.test.targets)))
    return rows
