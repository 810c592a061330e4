"""A checkpoint truncated at every byte and with every bit flipped: it is rejected, or loads what was saved."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer
from rich.console import Console

from degp import Checkpoints, Ensemble, Gaussian, methods
from degp.nets import mlp
from degp.runtime.execution import Vmap
from degp.training import CheckpointError, TrainState

__all__ = ["campaign", "main"]

Damage = Iterator[tuple[str, bytes]]


def main(stride: Annotated[int, typer.Option(help="Damage only every n-th byte.")] = 1) -> None:
    """Damage a checkpoint at every position, one at a time."""
    console, start = Console(), time.perf_counter()
    tally = campaign(stride)
    for (file, damage, outcome), count in sorted(tally.items()):
        console.print(f"{file:18} {damage:12} {outcome:8} {count:7}", highlight=False)
    wrong = sum(count for (_, _, outcome), count in tally.items() if outcome == "WRONG")
    console.print(f"{wrong} wrong of {tally.total()} in {time.perf_counter() - start:.0f} s", highlight=False)
    raise typer.Exit(1 if wrong else 0)


def campaign(stride: int = 1) -> Counter[tuple[str, str, str]]:
    """Counts by (file, damage, outcome); the outcome is "rejected", "equal" or "WRONG"."""
    tally: Counter[tuple[str, str, str]] = Counter()
    with TemporaryDirectory(prefix="degp-bits-") as folder:
        saved, other = _state(seed=1), _state(seed=0)
        path = Checkpoints(folder).save(saved)
        for file in sorted(path.iterdir()):
            intact = file.read_bytes()
            for damage, content in _damaged(intact, stride):
                file.write_bytes(content)
                outcome = _outcome(path, saved, other)
                tally[file.name, damage, outcome] += 1
                if outcome != "rejected":
                    other = _state(seed=0)  # the checkpoint was loaded into this one
            file.write_bytes(intact)
    return tally


def _damaged(intact: bytes, stride: int) -> Damage:
    for place in range(0, len(intact), stride):
        yield "truncated", intact[:place]
        for bit in range(8):
            yield "flipped bit", intact[:place] + bytes([intact[place] ^ (1 << bit)]) + intact[place + 1 :]


def _outcome(path: Path, saved: TrainState, other: TrainState) -> str:
    try:
        Checkpoints(path.parent).load(path, other)
    except CheckpointError:
        return "rejected"
    return "equal" if _plain(other) == _plain(saved) else "WRONG"


def _state(seed: int) -> TrainState:
    torch.manual_seed(seed)
    ensemble = Ensemble(lambda: mlp(1, [2], 1), 2, execution=Vmap())
    sgd = torch.optim.SGD(ensemble.parameters(), lr=0.1 + seed)
    generator = torch.Generator().manual_seed(seed)
    return TrainState(ensemble, methods.de(Gaussian(0.1 + seed)), [sgd], [], generator, count=seed)


def _plain(state: TrainState) -> object:
    """Everything that depends on the seed, in a form that `==` compares."""
    assert isinstance(state.method, torch.nn.Module)
    weights = {**state.ensemble.state_dict(), **state.method.state_dict()}
    values = {name: value.tolist() for name, value in weights.items()}
    return values, state.optimizers[0].state_dict(), state.generator.get_state().tolist(), state.count
