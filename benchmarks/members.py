"""Execution strategies of M members: the chosen one compared with every other."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.timing import in_turns
from degp import Ensemble
from degp.nets import mlp
from degp.runtime.execution import Execution, candidates_for


def run() -> list[dict[str, Any]]:
    """Forward and backward passes of MLPs and of a small BatchNorm CNN by each strategy, and the chosen ÷ the best."""
    return [
        *_compare("MLP 13-256-256-1, M = 10, B = 256", lambda: mlp(13, (256, 256), 1), torch.randn(256, 13), 10),
        *_compare("MLP 8-64-64-1, M = 50, B = 128", lambda: mlp(8, (64, 64), 1), torch.randn(128, 8), 50),
        *_compare("BatchNorm CNN 16-32, M = 10, B = 64", _cnn, torch.randn(64, 1, 28, 28), 10),
    ]


def _compare(network: str, make: Callable[[], nn.Module], inputs: torch.Tensor, count: int) -> list[dict[str, Any]]:
    ensemble = Ensemble(make, count)
    chosen = ensemble.choose_execution(inputs).execution.name
    passes = {strategy.name: _pass(ensemble, strategy, inputs) for strategy in candidates_for(inputs)}
    milliseconds = in_turns(passes, rounds=9)
    best = min(milliseconds.values())
    return [
        {
            "network": network,
            "strategy": name,
            "ms": time,
            "ratio to best": time / best,
            "chosen": "yes" if name == chosen else "",
        }
        for name, time in milliseconds.items()
    ]


def _pass(ensemble: Ensemble, strategy: Execution, inputs: torch.Tensor) -> Callable[[], None]:
    def forward_and_backward() -> None:
        ensemble.execution = strategy
        ensemble.zero_grad(set_to_none=True)
        ensemble(inputs).sum().backward()

    return forward_and_backward


def _cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 10)),
    )
