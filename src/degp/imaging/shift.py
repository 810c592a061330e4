"""A trained ensemble on corrupted test images, by type and severity."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from degp.data.corruptions import CORRUPTIONS, corrupt
from degp.imaging.assessment import readings
from degp.imaging.sets import ImageSets
from degp.imaging.training import Trained
from degp.training.progress import progress_bar


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
    """A row with `corruption`, `severity` and scores for each; the first is of clean images, at severity 0.

    The temperature is fitted on clean validation images; `nll_unfitted` and `ece_unfitted` are without,
    `nll_calibrated` and `ece_calibrated` by `TwoTemperatures`. The same seed makes the same images for every ensemble,
    one set at a time in memory.

    Args:
        overlays: the ice of frost, see `frost_overlays`; frost is left out where there are none.
        progress: a progress bar; by default where the output is a terminal.
    """
    read = readings(trained, sets.validation, batch_size=batch_size)

    def row(name: str, severity: int, images: UInt8[Tensor, "N 3 H W"]) -> dict[str, Any]:
        outputs = trained.outputs(images, batch_size=batch_size, progress=False)
        return {"corruption": name, "severity": severity, **read.scores(outputs, sets.test.targets)}

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
