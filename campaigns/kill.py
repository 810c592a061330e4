"""Training that is killed at random moments and resumed each time: the end must be the undisturbed one, to the bit.

Each attempt is a forked process that goes on from the newest checkpoint and is sent SIGKILL after a random time, in the
middle of whatever it does: a step, the writing of a checkpoint, the removal of an old one.
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

from degp import Batch, Checkpoints, Ensemble, Gaussian, UniformBox, fit, objectives
from degp.execution import Vmap
from degp.nets import mlp
from degp.priors import NNGP

EPOCHS, BATCH, ROWS = 40, 16, 64


@dataclass(frozen=True)
class Toll:
    """What a campaign cost, and what came of it."""

    kills: int
    runs: int
    unequal: int
    seconds: float


def main(
    kills: Annotated[int, typer.Option(help="How many processes to kill.")] = 200,
    seed: Annotated[int, typer.Option(help="For the moments of the kills.")] = 0,
) -> None:
    """Kill training again and again; resume each time."""
    toll = campaign(kills, seed)
    verdict = "all equal to the undisturbed run, to the bit" if not toll.unequal else f"{toll.unequal} DIFFER"
    Console().print(f"{toll.kills} kills in {toll.runs} runs, {toll.seconds:.0f} s: {verdict}", highlight=False)
    raise typer.Exit(1 if toll.unequal else 0)


def campaign(kills: int, seed: int = 0) -> Toll:
    """Runs that are killed until they end, one after the other, until so many processes have died."""
    torch.set_num_threads(1)  # a process that forks must not have threads
    dice, start = random.Random(seed), time.perf_counter()
    with TemporaryDirectory(prefix="degp-kill-") as folder:
        truth = _whole(Path(folder) / "undisturbed")
        done = runs = unequal = 0
        while done < kills:
            place = Path(folder) / f"run-{runs}"
            done += _killed_until_done(place, dice, kills - done)
            unequal += not _equal(truth, _whole(place))
            runs += 1
    return Toll(done, runs, unequal, time.perf_counter() - start)


def _killed_until_done(place: Path, dice: random.Random, most: int) -> int:
    """How many processes died before one got to the end; after `most` of them one is let go."""
    kills = 0
    while True:
        child = os.fork()
        if child == 0:
            _go_on(place)  # never comes back
        if kills < most:
            time.sleep(dice.uniform(0.0, 0.5))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            if os.waitstatus_to_exitcode(status):
                raise RuntimeError(f"a resumed process failed; its checkpoints are in {place}")
            return kills
        kills += 1


def _go_on(place: Path) -> None:
    code = 1
    try:
        _whole(place)
        code = 0
    finally:
        os._exit(code)


def _whole(place: Path) -> dict[str, Tensor]:
    """The weights at the end of the run whose checkpoints are in `place`, taken up where it stands."""
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: mlp(2, (16,), 1), 3, execution=Vmap())
    x = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(1))
    data = Batch(x, x[:, :1].sin())
    objective = objectives.degp(Gaussian(0.1, learned=True), NNGP(1), measurement=UniformBox.around(x, 4))
    fit(
        ensemble,
        data,
        objective,
        epochs=EPOCHS,
        batch_size=BATCH,
        checkpoints=Checkpoints(place, every=3),
        resume=True,
        generator=torch.Generator().manual_seed(2),
        progress=False,
    )
    return dict(ensemble.state_dict())


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
