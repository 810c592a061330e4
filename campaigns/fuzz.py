"""Thousands of damaged files: every reader returns data or raises its own error.

Each case cuts a valid file, flips bits, or overwrites, repeats or removes a range of bytes. It fails on any other
exception, or if reading takes far more memory than the file's size.
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

__all__ = ["Tally", "campaign", "damaged", "main"]

MAX_MEMORY = 2**28  # peak bytes per case


@dataclass
class Tally:
    """How a target's cases ended."""

    cases: int = 0
    read: int = 0
    rejected: int = 0
    faults: list[str] = field(default_factory=list)
    peak: int = 0


def main(
    cases: Annotated[int, typer.Option(help="Damaged files in total.")] = 100_000,
    seed: Annotated[int, typer.Option(help="For the damage.")] = 0,
) -> None:
    """Pass damaged files to every reader."""
    console, start = Console(), time.perf_counter()
    share, faults = max(1, cases // len(TARGETS)), 0
    for name, target in TARGETS.items():
        tally = campaign(target, share, seed, show=console.is_terminal)
        faults += len(tally.faults)
        console.print(
            f"{name:28} {tally.cases:7} cases: {tally.read} read, {tally.rejected} rejected, "
            f"{len(tally.faults)} faults, peak memory {tally.peak / 2**20:.0f} MiB",
            highlight=False,
        )
        for fault in tally.faults[:3]:
            console.print(f"  {fault}", highlight=False, markup=False)
    console.print(f"{faults} faults in {time.perf_counter() - start:.0f} s", highlight=False)
    raise typer.Exit(1 if faults else 0)


def campaign(target: Target, cases: int, seed: int = 0, *, show: bool = False) -> Tally:
    """Reads this many damaged versions of a target's files."""
    rng, tally = random.Random(seed), Tally()
    with TemporaryDirectory(prefix="degp-fuzz-") as folder:
        place = Path(folder)
        files = target.write(place)
        intact = {file: (place / file).read_bytes() for file in files}
        for _ in track(range(cases), disable=not show, transient=True):
            file = rng.choice(files)
            (place / file).write_bytes(damaged(intact[file], rng))
            _try(target, place, tally)
            (place / file).write_bytes(intact[file])
    return tally


def _try(target: Target, place: Path, tally: Tally) -> None:
    tally.cases += 1
    measured = tally.cases % 50 == 0  # tracing memory is slow
    if measured:
        tracemalloc.start()
    try:
        target.read(place)
        tally.read += 1
    except target.errors:
        tally.rejected += 1
    except Exception as error:  # any other exception is a fault
        tally.faults.append(f"{type(error).__name__}: {str(error)[:200]}")
    finally:
        if measured:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            tally.peak = max(tally.peak, peak)
            if peak > MAX_MEMORY:
                tally.faults.append(f"{peak / 2**20:.0f} MiB of memory")


def damaged(content: bytes, rng: random.Random) -> bytes:
    """One kind of damage at a random position; headers, at the start of a file, are damaged more often."""
    return rng.choice(DAMAGES)(bytearray(content), rng)


def _position(content: bytearray, rng: random.Random) -> int:
    return rng.randrange(min(len(content), 64) if rng.random() < 0.5 else len(content))


def _cut(content: bytearray, rng: random.Random) -> bytes:
    return bytes(content[: _position(content, rng)])


def _flip(content: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 8))):
        content[_position(content, rng)] ^= 1 << rng.randrange(8)
    return bytes(content)


def _overwrite(content: bytearray, rng: random.Random) -> bytes:
    start = _position(content, rng)
    content[start : start + 8] = rng.choice((b"\xff" * 8, b"\x00" * 8, b"\x7f" + b"\xff" * 7, rng.randbytes(8)))
    return bytes(content)


def _repeat(content: bytearray, rng: random.Random) -> bytes:
    start = _position(content, rng)
    return bytes(content[:start] + content[start : start + rng.randrange(1, 64)] * 2 + content[start:])


def _remove(content: bytearray, rng: random.Random) -> bytes:
    start = _position(content, rng)
    del content[start : start + rng.randrange(1, 64)]
    return bytes(content)


DAMAGES: tuple[Callable[[bytearray, random.Random], bytes], ...] = (_cut, _flip, _flip, _overwrite, _repeat, _remove)
