"""What chance alone would show: the range of a share, and of a statistic over resampled rows."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

CHANCE = 0.99  # what chance shows in fewer cases than one in a hundred is called no chance


def count_distribution(probabilities: Float[Tensor, "N"]) -> Float[Tensor, "counts"]:
    """P(k of N rows succeed) for k = 0, 1, …, where each row succeeds with a probability of its own.

    The product of the polynomials (1 − p_n) + p_n x, two at a time by FFT: exact to rounding, O(N log² N).
    """
    p = probabilities.double()
    pmf = torch.stack([1 - p, p], dim=-1)
    while len(pmf) > 1:
        if len(pmf) % 2:
            pmf = torch.cat([pmf, torch.zeros_like(pmf[:1]).index_fill(1, torch.tensor(0), 1.0)])  # times 1
        size = 2 * pmf.shape[1] - 1
        spectrum = torch.fft.rfft(pmf, n=size)
        pmf = torch.fft.irfft(spectrum[::2] * spectrum[1::2], n=size)
    return pmf[0]


def chance_range(probabilities: Float[Tensor, "N"], chance: float = CHANCE) -> tuple[float, float]:
    """The shares of successes between which `chance` of all cases lie, as much below the range as above it."""
    below = count_distribution(probabilities).cumsum(0)
    tail = (1 - chance) / 2
    low, high = (int((below < quantile).sum()) for quantile in (tail, 1 - tail))
    return low / len(probabilities), min(high / len(probabilities), 1.0)


def normal_margin(chance: float = CHANCE) -> float:
    """How many standard errors chance strays to either side: 2.58 for 99 %."""
    return math.sqrt(2) * torch.erfinv(torch.tensor(chance, dtype=torch.float64)).item()


def bootstrap(
    statistics: Callable[[Tensor], Float[Tensor, "K"]],
    observed: Float[Tensor, "K"],
    num_rows: int,
    *,
    level: float = 0.95,
    resamples: int,
    generator: torch.Generator,
) -> Float[Tensor, "2 K"]:
    """Lower and upper ends of bootstrap intervals of K statistics, each a function of row indices.

    They are percentiles of the resampled statistics, moved so that these average to what was `observed`: a calibration
    error is larger on resampled rows, which repeat themselves, and would lie outside its own interval. A resample on
    which a statistic is undefined (NaN) does not count for it.
    """
    draws = torch.stack(
        [statistics(torch.randint(num_rows, (num_rows,), generator=generator)) for _ in range(resamples)]
    )
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=draws.dtype)
    return draws.nanquantile(ends, dim=0) - draws.nanmean(dim=0) + observed


def rank_correlation(first: Float[Tensor, "N"], second: Float[Tensor, "N"]) -> float:
    """Spearman's: the correlation of the ranks, equal values sharing the mean of theirs; NaN if either is constant."""
    a, b = (ranks - ranks.mean() for ranks in (_ranks(first), _ranks(second)))
    return (a @ b / (a.norm() * b.norm())).item()  # 0/0 = NaN


def _ranks(values: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    _, group, size = values.unique(return_inverse=True, return_counts=True)
    return (size.cumsum(0) - (size - 1) / 2)[group].double()
