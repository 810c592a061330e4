"""CPU settings for training: as many threads as help, flushed denormals, and an allocator that keeps freed memory."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

__all__ = ["ThreadTrial", "measured_threads", "no_denormals", "threads", "tune_process"]

Result = TypeVar("Result")

TRIALS = 3  # calls with each number of threads, of which the shortest counts
SHORT = 5e-3  # seconds; shorter calls have too little to share out
GAIN = 0.9  # all threads must take less than this share of the time of one
HOPELESS = 4.0  # times as long as with one thread, at the first call: another program has the cores


@cache
def tune_process() -> None:
    """Sets torch's worker threads and glibc's allocator for training on the CPU; for programs that own their process.

    The command line, the experiments and the benchmarks call it; the library never does. Momentum and weights that
    decay towards zero become denormal after some hundred steps, and arithmetic with denormals is up to a hundred times
    slower. Worker threads inherit the flush-to-zero mode of the thread that starts them, so they are started here with
    it on; `no_denormals` does the same for the calling thread while it trains. glibc returns large freed blocks to the
    system, so that every step pays for fresh pages; from here on it keeps them.
    """
    with no_denormals():
        torch.ones(2**20, device="cpu").add_(1)  # large enough to be done by all threads
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another allocator than glibc's
    trim_threshold, mmap_threshold = -1, -3
    mallopt(trim_threshold, 2**30)
    mallopt(mmap_threshold, 2**30)


@contextmanager
def no_denormals() -> Iterator[None]:
    """Flushes denormal numbers to zero in this thread within the block."""
    before = float(torch.tensor(1e-39, device="cpu") * 1) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


class _Blocks:
    """The blocks of `threads` that are open in this process.

    torch hands the last number that any thread has set to threads that start later. So a block that opens in a new
    thread, while another is open elsewhere, restores what the other one found.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.here = threading.local()  # depth: blocks open in this thread
        self.open = 0
        self.outside = 1

    def enter(self, count: int) -> int:
        """Sets the number of threads; returns the number to restore."""
        with self.lock:
            depth = getattr(self.here, "depth", 0)
            current = torch.get_num_threads()  # a thread's first call sets its number, and must come before ours
            before = self.outside if self.open and not depth else current
            if not self.open:
                self.outside = before
            self.open, self.here.depth = self.open + 1, depth + 1
            torch.set_num_threads(count)
        return before

    def leave(self, before: int) -> None:
        with self.lock:
            torch.set_num_threads(before)
            self.open, self.here.depth = self.open - 1, self.here.depth - 1


_blocks = _Blocks()


@contextmanager
def threads(count: int) -> Iterator[int]:
    """A block in which torch computes with so many threads; yields the number outside, which it restores.

    Blocks may be nested, and open in several threads at once.
    """
    before = _blocks.enter(count)
    try:
        yield before
    finally:
        _blocks.leave(before)


class ThreadTrial:
    """Calls work with one thread, then with all, and from then on with the faster number.

    Short work stays with one thread. So does work that takes longer with all, as on a machine whose cores are in use.

    Args:
        most: all threads.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = [1] * TRIALS + [most] * TRIALS if most > 1 else []
        self.seconds = {1: float("inf"), most: float("inf")}

    def __call__(self, work: Callable[[], Result]) -> Result:
        """The result of the work."""
        if not self.left:
            return work()
        count = self.left.pop(0)
        torch.set_num_threads(count)
        start = time.perf_counter()
        result = work()
        self._note(count, time.perf_counter() - start)
        return result

    def _note(self, count: int, seconds: float) -> None:
        self.seconds[count] = min(self.seconds[count], seconds)
        one, all_ = self.seconds[1], self.seconds[self.most]
        is_short = len(self.left) == TRIALS and one < SHORT
        if is_short or (count > 1 and all_ > HOPELESS * one):
            self.left = []
        if not self.left:
            torch.set_num_threads(self.most if all_ < GAIN * one else 1)


@contextmanager
def measured_threads() -> Iterator[ThreadTrial]:
    """A block with one thread, or with all if the work that is called through its trial is faster with all.

    with measured_threads() as trial:
        for batch in batches:
            trial(lambda: step(batch))
    """
    with threads(1) as most:
        yield ThreadTrial(most)
