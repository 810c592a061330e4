"""Progress bars: one for all ranks, by default only in a terminal."""

from typing import Never

from tqdm.auto import tqdm

from degp.runtime.distributed import ALONE, Mesh

__all__ = ["progress_bar"]


def progress_bar(
    total: int, unit: str, progress: bool | None, *, mesh: Mesh = ALONE, done: int = 0, after: float = 0.0
) -> "tqdm[Never]":
    """A bar on the first rank that disappears at the end.

    Args:
        progress: whether to show it; None shows it in a terminal.
        done: part of the total that is done already.
        after: seconds before it appears.
    """
    shown = progress if mesh.is_first else False
    hidden = None if shown is None else not shown  # None: tqdm hides the bar without a terminal
    return tqdm(total=total, initial=done, disable=hidden, unit=unit, delay=after, leave=False)
