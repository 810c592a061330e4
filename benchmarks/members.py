"""How M members run: the way that is chosen by measurement beside every way there is."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.timing import in_turns
from degp import Ensemble
from degp.execution import Execution, candidates_for
from degp.nets import mlp


def run() -> list[dict[str, Any]]:
    """Forward and backward of an MLP and of a small BatchNorm CNN by each way, and the chosen ÷ the best."""
    return [
        *_compare("MLP 13-256-256-1, M = 10, B = 256", lambda: mlp(13, (256, 256), 1), torch.randn(256, 13), 10),
        *_compare("MLP 8-64-64-1, M = 50, B = 128", lambda: mlp(8, (64, 64), 1), torch.randn(128, 8), 50),
        *_compare("CNN 16-32 with BatchNorm, M = 10, B = 64", _cnn, torch.randn(64, 1, 28, 28), 10),
    ]


def _compare(network: str, make: Callable[[], nn.Module], inputs: torch.Tensor, count: int) -> list[dict[str, Any]]:
    ensemble = Ensemble(make, count)
    choice = ensemble.choose_execution(inputs)
    ways = {way.name: way for way in candidates_for(inputs) if way.name in choice.milliseconds}
    milliseconds = in_turns({name: _pass(ensemble, way, inputs) for name, way in ways.items()}, rounds=9)
    best = min(milliseconds.values())
    return [
        {
            "network": network,
            "way": name,
            "ms": time,
            "ratio to best": time / best,
            "chosen": "yes" if name == choice.execution.name else "",
        }
        for name, time in milliseconds.items()
    ]


def _pass(ensemble: Ensemble, way: Execution, inputs: torch.Tensor) -> Callable[[], None]:
    def forward_and_backward() -> None:
        ensemble.execution = way
        ensemble.zero_grad(set_to_none=True)
        ensemble(inputs).sum().backward()

    return forward_and_backward


def _cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 10)),
    )
