"""Torch on the CPU, readied for long training: no denormal numbers, and memory that is kept."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


@cache
def settle_cpu() -> None:
    """Readies torch's worker threads and the allocator for training on the CPU, once.

    Momentum and weights that decay towards zero become denormal after some hundred steps, and arithmetic with those is
    up to a hundred times slower. Threads inherit from the one that starts them whether denormals count as zero, so the
    workers are started here with that set; `no_denormals` does it for the calling thread while it trains. And glibc
    gives large freed blocks back to the system, so that every step pays for fresh pages: it keeps them from here on.
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
    """Denormal numbers count as zero in this thread within the block; then as before."""
    before = float(torch.tensor(1e-39, device="cpu") * 1) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
