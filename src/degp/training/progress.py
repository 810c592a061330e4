"""Bars for work that takes long: one for all ranks, and by default only where somebody looks."""

from typing import Never

from tqdm.auto import tqdm

from degp.distributed import ALONE, Mesh


def progress_bar(
    total: int, unit: str, progress: bool | None, *, mesh: Mesh = ALONE, done: int = 0, after: float = 0.0
) -> "tqdm[Never]":
    """A bar of the first rank's that is gone in the end.

    Args:
        progress: whether there is one; None is where the output is a terminal.
        done: of the total, before this run.
        after: seconds that go by without one.
    """
    shown = progress if mesh.is_first else False
    hidden = None if shown is None else not shown  # None: tqdm hides the bar where there is no terminal
    return tqdm(total=total, initial=done, disable=hidden, unit=unit, delay=after, leave=False)
