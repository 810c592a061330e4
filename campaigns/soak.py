"""Hours of fit, predict and update in one process: memory and open files must not grow."""

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from degp.sklearn import DEGPRegressor
from degp.tabular.saving import load_model, save_model

__all__ = ["campaign", "main"]

WARM_UP = 20  # cycles before the first measurement: caches fill


def main(minutes: Annotated[float, typer.Option(help="How long.")] = 60.0) -> None:
    """Fit, predict, update, save and load in a loop."""
    console = Console()
    samples = campaign(60 * minutes)
    (first, *_), last = samples, samples[-1]
    tenths = [samples[round(i * (len(samples) - 1) / 10)] for i in range(11)]  # shows whether growth continues
    console.print(
        f"{last[0]} cycles in {minutes:g} minutes: open files {first[2]} → {last[2]}; MiB of memory at each tenth: "
        + ", ".join(f"{memory:.1f}" for _, memory, _ in tenths),
        highlight=False,
    )
    raise typer.Exit(1 if last[2] > first[2] or last[1] > 1.1 * first[1] + 32 else 0)


def campaign(seconds: float, *, warm_up: int = WARM_UP) -> list[tuple[int, float, int]]:
    """(cycles, MiB of memory, open files) after every tenth cycle, from the end of the warm-up."""
    samples, start, cycle = [], time.perf_counter(), 0
    with TemporaryDirectory(prefix="degp-soak-") as folder:
        while cycle < warm_up or time.perf_counter() - start < seconds:
            _cycle(Path(folder), cycle)
            cycle += 1
            if cycle >= warm_up and cycle % 10 == 0:
                samples.append((cycle, _memory(), len(os.listdir("/proc/self/fd"))))
    return samples or [(cycle, _memory(), len(os.listdir("/proc/self/fd")))]


def _cycle(folder: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    X = random.standard_normal((60, 3))
    y = X[:, 0] + 0.1 * random.standard_normal(60)
    model = DEGPRegressor(members=3, hidden_layers=(8,), steps=3, random_state=seed).fit(X, y)
    model.update(X[:5], y[:5])
    save_model(folder / "model", model)
    load_model(folder / "model").estimator.predict(X, return_std=True)


def _memory() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
