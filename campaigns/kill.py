"""Training that is killed at random moments and resumed: the result must equal an uninterrupted run bit for bit.

Each attempt is a forked process that resumes from the newest checkpoint and receives SIGKILL after a random time,
whatever it is doing: a step, writing a checkpoint, deleting an old one.
"""

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer
from rich.console import Console
from torch import Tensor

from degp import Batch, Checkpoints, Ensemble, Gaussian, UniformBox, fit, methods
from degp.nets import mlp
from degp.priors import NNGP
from degp.runtime.execution import Vmap
from degp.training import Plan

__all__ = ["Outcome", "campaign", "main"]

EPOCHS, BATCH, ROWS = 40, 16, 64
LONGEST = 0.5  # seconds before a process is killed


@dataclass(frozen=True)
class Outcome:
    """Killed processes, runs, and runs that differ from the uninterrupted one."""

    kills: int
    runs: int
    unequal: int
    seconds: float


def main(
    kills: Annotated[int, typer.Option(help="How many processes to kill.")] = 200,
    seed: Annotated[int, typer.Option(help="For the times of the kills.")] = 0,
) -> None:
    """Kill and resume training at random moments."""
    outcome = campaign(kills, seed)
    verdict = f"{outcome.unequal} DIFFER" if outcome.unequal else "all bit-for-bit equal to the uninterrupted run"
    Console().print(
        f"{outcome.kills} kills in {outcome.runs} runs, {outcome.seconds:.0f} s: {verdict}", highlight=False
    )
    raise typer.Exit(1 if outcome.unequal else 0)


def campaign(kills: int, seed: int = 0) -> Outcome:
    """Runs one after the other, each killed and resumed until it ends, until this many processes were killed."""
    torch.set_num_threads(1)  # a process that forks must not have threads
    moments, start = random.Random(seed), time.perf_counter()
    with TemporaryDirectory(prefix="degp-kill-") as folder:
        expected = _trained(Path(folder) / "uninterrupted")
        done = runs = unequal = 0
        while done < kills:
            place = Path(folder) / f"run-{runs}"
            done += _kill_until_done(place, moments, kills - done)
            unequal += not _equal(expected, _trained(place))
            runs += 1
    return Outcome(done, runs, unequal, time.perf_counter() - start)


def _kill_until_done(place: Path, moments: random.Random, most: int) -> int:
    """The number of processes killed before one finished; after `most` of them none is killed."""
    kills = 0
    while True:
        child = os.fork()
        if child == 0:
            _resume(place)  # does not return
        if kills < most:
            time.sleep(moments.uniform(0.0, LONGEST))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            if os.waitstatus_to_exitcode(status):
                raise RuntimeError(f"a resumed process failed; its checkpoints are in {place}")
            return kills
        kills += 1


def _resume(place: Path) -> None:
    code = 1
    try:
        _trained(place)
        code = 0
    finally:
        os._exit(code)


def _trained(place: Path) -> dict[str, Tensor]:
    """The final weights of the run whose checkpoints are in `place`, resumed from the newest."""
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: mlp(2, (16,), 1), 3, execution=Vmap())
    x = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(1))
    data = Batch(x, x[:, :1].sin())
    method = methods.degp(Gaussian(0.1, learned=True), NNGP(1), measurement=UniformBox.around(x, 4))
    fit(
        ensemble,
        data,
        method,
        Plan(epochs=EPOCHS, batch_size=BATCH, checkpoints=Checkpoints(place, every=3), resume=True),
        generator=torch.Generator().manual_seed(2),
        progress=False,
    )
    return dict(ensemble.state_dict())


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
