"""A checkpoint cut at every byte and with every bit flipped: it is refused, or it is what was saved."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer
from rich.console import Console

from degp import Checkpoints, Ensemble, Gaussian, objectives
from degp.execution import Vmap
from degp.nets import mlp
from degp.training import CheckpointError, TrainState

Damage = Iterator[tuple[str, bytes]]


def main(stride: Annotated[int, typer.Option(help="Look at every so many bytes only.")] = 1) -> None:
    """Damage a checkpoint in every place, one at a time."""
    console, start = Console(), time.perf_counter()
    tally = campaign(stride)
    for (file, damage, outcome), count in sorted(tally.items()):
        console.print(f"{file:18} {damage:12} {outcome:8} {count:7}", highlight=False)
    wrong = sum(count for (_, _, outcome), count in tally.items() if outcome == "WRONG")
    console.print(f"{wrong} wrong of {tally.total()} in {time.perf_counter() - start:.0f} s", highlight=False)
    raise typer.Exit(1 if wrong else 0)


def campaign(stride: int = 1) -> Counter[tuple[str, str, str]]:
    """How many cases of each (file, damage) were refused, came back the same, or were WRONG."""
    tally: Counter[tuple[str, str, str]] = Counter()
    with TemporaryDirectory(prefix="degp-bits-") as folder:
        saved, other = _state(seed=1), _state(seed=0)
        path = Checkpoints(folder).save(saved)
        for file in sorted(path.iterdir()):
            whole = file.read_bytes()
            for damage, content in _damaged(whole, stride):
                file.write_bytes(content)
                outcome = _outcome(path, saved, other)
                tally[file.name, damage, outcome] += 1
                if outcome != "refused":
                    other = _state(seed=0)  # this one has been loaded into
            file.write_bytes(whole)
    return tally


def _damaged(whole: bytes, stride: int) -> Damage:
    for place in range(0, len(whole), stride):
        yield "cut", whole[:place]
        for bit in range(8):
            yield "flipped bit", whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :]


def _outcome(path: Path, saved: TrainState, other: TrainState) -> str:
    try:
        Checkpoints(path.parent).load(path, other)
    except CheckpointError:
        return "refused"
    return "the same" if _plain(other) == _plain(saved) else "WRONG"


def _state(seed: int) -> TrainState:
    torch.manual_seed(seed)
    ensemble = Ensemble(lambda: mlp(1, [2], 1), 2, execution=Vmap())
    sgd = torch.optim.SGD(ensemble.parameters(), lr=0.1 + seed)
    generator = torch.Generator().manual_seed(seed)
    return TrainState(ensemble, objectives.de(Gaussian(0.1 + seed)), [sgd], [], generator, count=seed)


def _plain(state: TrainState) -> object:
    """All that the seed decides, in a form that `==` compares."""
    assert isinstance(state.objective, torch.nn.Module)
    weights = {**state.ensemble.state_dict(), **state.objective.state_dict()}
    values = {name: value.tolist() for name, value in weights.items()}
    return values, state.optimizers[0].state_dict(), state.generator.get_state().tolist(), state.count
