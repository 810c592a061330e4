"""The cost of DE-GP relative to DE: one optimiser step of ten MLPs 13-256-256-1 on 256 points."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.timing import in_turns
from degp import Batch, Ensemble, Gaussian, methods
from degp.nets import mlp, mlp_features
from degp.priors import NNGP, MonteCarloNNGP

M, B, D, WIDTHS = 10, 256, 13, (256, 256)


def run() -> list[dict[str, Any]]:
    """DE-GP ÷ DE with the analytic prior and with ten random networks, resampled at each step or fixed.

    On all threads and on one: the members' products use several, the small matrices of the loss do not.
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
        "DE": _stepper(methods.de(likelihood)),
        "rDE": _stepper(methods.rde(likelihood)),
        "DE-GP, analytic prior": _stepper(methods.degp(likelihood, NNGP(len(WIDTHS)))),
        "DE-GP, 10 networks, fixed": _stepper(methods.degp(likelihood, MonteCarloNNGP(features).fixed())),
        "DE-GP, 10 networks, resampled": _stepper(methods.degp(likelihood, MonteCarloNNGP(features))),
    }
    milliseconds = in_turns(steps, rounds=40)
    # lower bound: 2 FLOP per weight, point and member forward, 4 backward
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


def _stepper(method: methods.Method) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    ensemble = Ensemble(lambda: mlp(D, WIDTHS, 1), M)
    batch = Batch(torch.randn(B, D, generator=generator), torch.randn(B, 1, generator=generator), population=B)
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=1e-4)

    def step() -> None:
        loss = methods.batch_loss(ensemble, batch, method, generator=generator)
        optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        optimizer.step()

    return step
