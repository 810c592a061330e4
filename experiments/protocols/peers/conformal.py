"""Split-conformal intervals around point predictions and around quantiles (Vovk et al., 2005; Romano et al., 2019)."""

import math

import numpy as np
from jaxtyping import Float, Int

from experiments.protocols.peers.contract import LEVEL, Interval

__all__ = ["around_mean", "conformal_quantile", "held_out", "std_floor"]

Rows = Int[np.ndarray, "_"]


def held_out(num_rows: int, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Rows to train on and rows to calibrate or validate on, at random; at least one of each."""
    order = np.random.RandomState(seed).permutation(num_rows)
    cut = min(max(round(fraction * num_rows), 1), num_rows - 1)
    return order[cut:], order[:cut]


def conformal_quantile(scores: Float[np.ndarray, "N"], level: float = LEVEL) -> float:
    """The ⌈(N + 1) · level⌉-th smallest score, at most the largest: new scores are below with probability ≥ level."""
    rank = min(math.ceil((len(scores) + 1) * level), len(scores))
    return float(np.sort(scores)[rank - 1])


def around_mean(mean: Float[np.ndarray, "N"], residuals: Float[np.ndarray, "K"], smallest_std: float) -> Interval:
    """mean ± the conformal quantile of the residuals' sizes."""
    half = conformal_quantile(np.abs(residuals))
    return Interval(mean, mean - half, mean + half, smallest_std)


def std_floor(targets: Float[np.ndarray, "N"]) -> float:
    """A thousandth of the targets' standard deviation."""
    return 1e-3 * float(np.std(targets))
