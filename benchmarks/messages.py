"""Ten ResNet-20s on a GPU: what the messages of several ranks add to a step of DE-GP, captured and not.

One optimiser step on 128 images, in bf16 and compiled. Steps of several ranks are those of one that sends to itself.
"""

from functools import partial
from typing import Any

import torch

from benchmarks.context import Make, Setting, Step, captured, de, measured, resnets, training_state
from benchmarks.images import B, crop_flip_normalise, images_on_gpu
from degp import Ensemble
from degp.runtime.distributed import ALONE, Mesh, loopback
from degp.training import Eager

METHOD = Setting(draws=10).method


def run() -> list[dict[str, Any]]:
    """Milliseconds per step; each divided by DE's."""
    torch.backends.cudnn.benchmark = True
    ensemble = resnets()
    alone: dict[str, Make] = {
        "DE": partial(captured, ensemble, de),
        "DE-GP, captured": partial(captured, ensemble, METHOD),
        "DE-GP, uncaptured": partial(uncaptured, ensemble, ALONE),
    }
    rows = measured(alone)
    for row in rows:
        print(row, flush=True)  # not lost, if messages hang
    ranks: dict[str, Make] = {
        "DE-GP, torchrun, captured": lambda: captured(ensemble, METHOD, loopback("cuda")),
        "DE-GP, torchrun, uncaptured": lambda: uncaptured(ensemble, loopback("cuda")),
    }
    return rows + measured(ranks)


def uncaptured(ensemble: Ensemble, mesh: Mesh) -> Step:
    """A step of eager operations."""
    state = training_state(ensemble, METHOD().cuda(), mesh)
    data = images_on_gpu()
    advance = Eager(crop_flip_normalise(), precision=torch.bfloat16, even=True).start(state, data, B)
    rows = torch.arange(B, device="cuda")
    return lambda: advance(rows)
