"""A trained ensemble on corrupted test images, by type and severity."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from degp.runtime.progress import progress_bar
from degp.vision import Trained, fit_temperatures
from experiments.data import DataSetError
from experiments.data.corruptions import CORRUPTIONS, corrupt, frost_overlays
from experiments.protocols.image_runs import Place
from experiments.protocols.image_sets import ImageSets


def corruption_table(
    trained: Trained,
    sets: ImageSets,
    *,
    types: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    overlays: Sequence[UInt8[Tensor, "3 _ _"]] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> list[dict[str, Any]]:
    """One row per type and severity with `corruption`, `severity` and scores; the first is of clean images, severity 0.

    Temperatures are fitted on clean validation images; the scores are those of `Calibrated.scores`. Equal seeds give
    every ensemble the same images, one set at a time in memory.

    Args:
        overlays: of frost, see `frost_overlays`; without them frost is omitted.
        progress: a progress bar; by default where the output is a terminal.
    """
    calibrated = fit_temperatures(trained, sets.validation, batch_size=batch_size)

    def row(name: str, severity: int, images: UInt8[Tensor, "N 3 H W"]) -> dict[str, Any]:
        outputs = trained.outputs(images, batch_size=batch_size, progress=False)
        return {"corruption": name, "severity": severity, **calibrated.scores(outputs, sets.test.targets)}

    def corrupted(name: str, severity: int) -> UInt8[Tensor, "N 3 H W"]:
        generator = torch.Generator(sets.test.inputs.device).manual_seed(seed)
        return corrupt(sets.test.inputs, name, severity, generator=generator, overlays=overlays)

    possible = [name for name in types if name != "frost" or overlays is not None]
    with progress_bar(len(possible) * len(severities), "set", progress, mesh=trained.ensemble.mesh) as bar:
        rows = [row("none", 0, sets.test.inputs)]
        for name, severity in product(possible, severities):
            rows.append(row(name, severity, corrupted(name, severity)))
            bar.update()
    return rows


def overlays_at(place: Place) -> tuple[UInt8[Tensor, "3 _ _"], ...] | None:
    """The overlays of frost; None where there are none, which is said."""
    try:
        return tuple(overlay.to(place.device) for overlay in frost_overlays())
    except DataSetError as reason:
        place.say(f"frost is omitted: {reason}")
        return None
