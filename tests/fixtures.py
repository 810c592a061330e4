"""Seeded numbers and generators that many tests draw their cases from."""

import torch


def normal(*shape, seed=0, dtype=torch.float64):
    """Standard normal numbers, the same for the same seed."""
    return torch.randn(*shape, dtype=dtype, generator=seeded(seed))


def seeded(seed=0):
    """A new generator."""
    return torch.Generator().manual_seed(seed)
