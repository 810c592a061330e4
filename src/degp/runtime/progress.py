"""Progress of work in units: a bar in a terminal, plain lines in a log file, one for all ranks.

Both show the elapsed and the remaining time. Work may end before its last unit, by convergence or by a time limit. A
known limit is part of the estimate: the total becomes the number of units that fit into it.
"""

import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Never

from tqdm.auto import tqdm

from degp.runtime.distributed import ALONE, Mesh

__all__ = ["BAR_AFTER", "Bar", "Lines", "duration", "expected_total", "progress_bar"]

BAR_AFTER = 1.0  # seconds of work without a bar, where most work is shorter
LINE_SECONDS = 30.0  # between two lines of a log
BAR = "{percentage:3.0f} %|{bar}| {unit} {n_fmt} of {total_fmt}, {elapsed} elapsed, {remaining} left{postfix}"


@contextmanager
def progress_bar(
    total: int | None,
    unit: str,
    progress: bool | None,
    *,
    mesh: Mesh = ALONE,
    done: int = 0,
    after: float = 0.0,
    max_seconds: float | None = None,
) -> Iterator["Bar | Lines"]:
    """A bar on the first rank that disappears at the end; without a terminal, a line every 30 seconds.

    Args:
        total: number of units; None where it is unknown.
        progress: whether to show anything; None shows a bar in a terminal or notebook, and no lines without one.
        done: part of the total that is done already.
        after: seconds before the bar appears.
        max_seconds: after which the work ends, done or not.
    """
    limit = math.inf if max_seconds is None else max_seconds
    if progress and mesh.is_first and not _is_interactive():
        yield Lines(total, unit, done, limit)
        return
    shown = progress if mesh.is_first else False
    hidden = None if shown is None else not shown  # None: tqdm hides the bar without a terminal
    bar: tqdm[Never]
    with tqdm(
        total=total,
        initial=done,
        disable=hidden,
        unit=unit,
        delay=after,
        leave=False,
        dynamic_ncols=True,
        bar_format=BAR,
    ) as bar:
        yield Bar(bar, total, done, limit)


def expected_total(total: int | None, done: int, steps: int, seconds: float, limit: float) -> int | None:
    """Units done in the end, if the time for `steps` of the `done` ones continues until the limit."""
    if not steps or seconds <= 0 or limit == math.inf:
        return total
    in_time = max(done, done - steps + math.ceil(steps * limit / seconds))
    return in_time if total is None else min(total, in_time)


class Bar:
    """tqdm's bar, in a terminal or notebook."""

    def __init__(self, bar: "tqdm[Never]", total: int | None, done: int, limit: float) -> None:
        self.bar, self.total, self.first, self.limit, self.start = bar, total, done, limit, time.monotonic()

    def update(self, n: int = 1) -> None:
        """Counts `n` more units as done."""
        if self.bar.disable:
            return
        done, seconds = self.bar.n + n, time.monotonic() - self.start
        self.bar.total = expected_total(self.total, done, done - self.first, seconds, self.limit)
        self.bar.update(n)

    def set_postfix(self, values: Mapping[str, str]) -> None:
        """Values to show from now on."""
        self.bar.set_postfix(values, refresh=False)


class Lines:
    """Lines on stderr, for a log file."""

    def __init__(self, total: int | None, unit: str, done: int, limit: float) -> None:
        self.total, self.unit, self.first, self.done, self.limit = total, unit, done, done, limit
        self.start = self.printed = time.monotonic()
        self.values = ""

    def update(self, n: int = 1) -> None:
        """Counts `n` more units as done."""
        self.done += n
        now = time.monotonic()
        if now - self.printed >= LINE_SECONDS:
            self.printed = now
            print(self._line(now - self.start), file=sys.stderr, flush=True)

    def set_postfix(self, values: Mapping[str, str]) -> None:
        """Values to show from now on."""
        self.values = "".join(f", {name} {value}" for name, value in values.items())

    def _line(self, seconds: float) -> str:
        steps = self.done - self.first
        total = expected_total(self.total, self.done, steps, seconds, self.limit)
        if total is None:
            return f"{self.unit} {self.done}: {duration(seconds)} elapsed{self.values}"
        rest = duration(seconds / steps * (total - self.done)) if steps else "unknown time"
        return f"{self.unit} {self.done} of {total}: {duration(seconds)} elapsed, {rest} left at most{self.values}"


def duration(seconds: float) -> str:
    """75.2 ↦ "1 min 15 s"; hours without seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _is_interactive() -> bool:
    """Whether a bar can be drawn over: in a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
