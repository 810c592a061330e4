"""CPU settings for long training: flushed denormals, and an allocator that keeps freed memory."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

__all__ = ["no_denormals", "tune_process"]


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
