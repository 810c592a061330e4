"""Broken files, by the thousand: every reader gives data or a clear error of its own, and nothing else.

Each case takes a valid file and cuts it, flips bits, overwrites, repeats or removes a stretch. What must not happen: an
exception other than the reader's own, or memory far beyond the file's size.
"""

import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from campaigns.targets import TARGETS, Target

MOST_MEMORY = 2**28  # bytes that a case may take at its peak


@dataclass
class Tally:
    """How a target's cases ended."""

    cases: int = 0
    read: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    peak: int = 0


def main(
    cases: Annotated[int, typer.Option(help="Broken files in all.")] = 100_000,
    seed: Annotated[int, typer.Option(help="For the damage.")] = 0,
) -> None:
    """Feed broken files to every reader."""
    console, start = Console(), time.perf_counter()
    share, faults = max(1, cases // len(TARGETS)), 0
    for name, target in TARGETS.items():
        tally = campaign(target, share, seed, show=console.is_terminal)
        faults += len(tally.faults)
        console.print(
            f"{name:28} {tally.cases:7} cases: {tally.read} read, {tally.refused} refused, {len(tally.faults)} faults, "
            f"most memory {tally.peak / 2**20:.0f} MiB",
            highlight=False,
        )
        for fault in tally.faults[:3]:
            console.print(f"  {fault}", highlight=False, markup=False)
    console.print(f"{faults} faults in {time.perf_counter() - start:.0f} s", highlight=False)
    raise typer.Exit(1 if faults else 0)


def campaign(target: Target, cases: int, seed: int = 0, *, show: bool = False) -> Tally:
    """So many broken forms of a target's files, each read once."""
    dice, tally = random.Random(seed), Tally()
    with TemporaryDirectory(prefix="degp-fuzz-") as folder:
        place = Path(folder)
        files = target.write(place)
        whole = {file: (place / file).read_bytes() for file in files}
        for _ in track(range(cases), disable=not show, transient=True):
            file = dice.choice(files)
            (place / file).write_bytes(damaged(whole[file], dice))
            _try(target, place, tally)
            (place / file).write_bytes(whole[file])
    return tally


def _try(target: Target, place: Path, tally: Tally) -> None:
    tally.cases += 1
    measured = tally.cases % 50 == 0  # tracing memory is slow
    if measured:
        tracemalloc.start()
    try:
        target.read(place)
        tally.read += 1
    except target.refusals:
        tally.refused += 1
    except Exception as error:  # a fault is whatever the reader does not call its own
        tally.faults.append(f"{type(error).__name__}: {str(error)[:200]}")
    finally:
        if measured:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            tally.peak = max(tally.peak, peak)
            if peak > MOST_MEMORY:
                tally.faults.append(f"{peak / 2**20:.0f} MiB of memory")


def damaged(content: bytes, dice: random.Random) -> bytes:
    """One kind of damage, at a random place; the start of a file, where headers are, is hit more often."""
    return dice.choice(DAMAGES)(bytearray(content), dice)


def _place(content: bytearray, dice: random.Random) -> int:
    return dice.randrange(min(len(content), 64) if dice.random() < 0.5 else len(content))


def _cut(content: bytearray, dice: random.Random) -> bytes:
    return bytes(content[: _place(content, dice)])


def _flip(content: bytearray, dice: random.Random) -> bytes:
    for _ in range(dice.choice((1, 1, 2, 8))):
        content[_place(content, dice)] ^= 1 << dice.randrange(8)
    return bytes(content)


def _overwrite(content: bytearray, dice: random.Random) -> bytes:
    start = _place(content, dice)
    content[start : start + 8] = dice.choice((b"\xff" * 8, b"\x00" * 8, b"\x7f" + b"\xff" * 7, dice.randbytes(8)))
    return bytes(content)


def _repeat(content: bytearray, dice: random.Random) -> bytes:
    start = _place(content, dice)
    return bytes(content[:start] + content[start : start + dice.randrange(1, 64)] * 2 + content[start:])


def _remove(content: bytearray, dice: random.Random) -> bytes:
    start = _place(content, dice)
    del content[start : start + dice.randrange(1, 64)]
    return bytes(content)


DAMAGES: tuple[Callable[[bytearray, random.Random], bytes], ...] = (_cut, _flip, _flip, _overwrite, _repeat, _remove)
