"""What DE-GP costs over DE: one optimiser step of ten MLPs 13-256-256-1 on 256 points."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.timing import in_turns
from degp import Batch, Ensemble, Gaussian, objectives
from degp.nets import mlp, mlp_features
from degp.priors import NNGP, MonteCarloNNGP

M, B, D, WIDTHS = 10, 256, 13, (256, 256)


def run() -> list[dict[str, Any]]:
    """DE-GP ÷ DE with the analytic prior and with ten random networks, drawn anew each step or once.

    On all threads and on one: the members' products use several, the small matrices of the objective do not.
    """
    threads = torch.get_num_threads()
    try:
        return [row for count in dict.fromkeys((threads, 1)) for row in _on(count)]
    finally:
        torch.set_num_threads(threads)


def _on(threads: int) -> list[dict[str, Any]]:
    torch.set_num_threads(threads)
    features = mlp_features(D, WIDTHS)
    likelihood = Gaussian(0.1)
    steps = {
        "DE": _stepper(objectives.de(likelihood)),
        "rDE": _stepper(objectives.rde(likelihood)),
        "DE-GP, analytic prior": _stepper(objectives.degp(likelihood, NNGP(len(WIDTHS)))),
        "DE-GP, 10 networks, fixed": _stepper(objectives.degp(likelihood, MonteCarloNNGP(features).fixed())),
        "DE-GP, 10 networks, redrawn": _stepper(objectives.degp(likelihood, MonteCarloNNGP(features))),
    }
    milliseconds = in_turns(steps, rounds=40)
    # floor: 2 FLOP a weight, point and member forward, 4 backward
    flops = 6 * M * B * sum(p.numel() for p in mlp(D, WIDTHS, 1).parameters())
    return [
        {
            "step": name,
            "threads": threads,
            "ms": time,
            "ratio to DE": time / milliseconds["DE"],
            "GFLOP/s of the members alone": flops / time / 1e6,
        }
        for name, time in milliseconds.items()
    ]


def _stepper(objective: objectives.Objective) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    ensemble = Ensemble(lambda: mlp(D, WIDTHS, 1), M)
    batch = Batch(torch.randn(B, D, generator=generator), torch.randn(B, 1, generator=generator))
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=1e-4)

    def step() -> None:
        loss = objective(ensemble, batch, generator=generator)
        optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        optimizer.step()

    return step
