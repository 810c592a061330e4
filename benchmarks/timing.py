"""Interleaved timing: work is timed in turns, so that noise of the machine affects all of it alike."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def in_turns(work: Mapping[str, Callable[[], object]], *, rounds: int = 15, warm_up: int = 2) -> dict[str, float]:
    """Median milliseconds per piece of work over `rounds` rounds, each of which runs all of it in turn."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for index in range(warm_up + rounds):
        for name, run in work.items():
            elapsed = _milliseconds(run)
            if index >= warm_up:
                times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}


def _milliseconds(run: Callable[[], object]) -> float:
    _wait()
    start = time.perf_counter()
    run()
    _wait()
    return 1e3 * (time.perf_counter() - start)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
