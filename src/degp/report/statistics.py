"""Sampling variation: exact intervals for counts, bootstrap intervals, rank correlation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from degp.metrics.regression import normal_quantile

__all__ = [
    "CONFIDENCE",
    "MARGIN",
    "Resampling",
    "bootstrap_intervals",
    "fraction_interval",
    "poisson_binomial",
    "rank_correlation",
]

CONFIDENCE = 0.99  # of every test and every band in the report
MARGIN = normal_quantile(CONFIDENCE)  # 2.58 standard errors to either side


@dataclass(frozen=True)
class Resampling:
    """How often to draw samples, from what generator; `tick` is called once per sample, to show progress."""

    count: int
    generator: torch.Generator
    tick: Callable[[], object]

    def __iter__(self) -> Iterator[torch.Generator]:
        for _ in range(self.count):
            yield self.generator
            self.tick()


def poisson_binomial(probabilities: Float[Tensor, "N"]) -> Float[Tensor, "counts"]:
    """P(k of N rows succeed) for k = 0, 1, …, where row n succeeds with probability p_n.

    The product of the polynomials (1 − p_n) + p_n x, two at a time by FFT: exact up to rounding, O(N log² N).
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


def fraction_interval(probabilities: Float[Tensor, "N"], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Central interval that holds the observed fraction of successes with probability `confidence` or more."""
    cdf = poisson_binomial(probabilities).cumsum(0)
    tail = (1 - confidence) / 2
    low, high = (int((cdf < quantile).sum()) for quantile in (tail, 1 - tail))
    return low / len(probabilities), min(high / len(probabilities), 1.0)


def bootstrap_intervals(
    statistics: Callable[[Tensor], Float[Tensor, "K"]],
    observed: Float[Tensor, "K"],
    num_rows: int,
    *,
    sampling: Resampling,
    level: float = 0.95,
) -> Float[Tensor, "2 K"]:
    """Lower and upper ends of bootstrap intervals of K statistics, each a function of row indices.

    They are percentiles of the resampled statistics, shifted so that the resamples average to `observed`: a calibration
    error is larger on resampled rows, which contain duplicates, and would lie outside its own interval. A resample on
    which a statistic is undefined (NaN) is ignored.
    """
    draws = torch.stack(
        [statistics(torch.randint(num_rows, (num_rows,), generator=generator)) for generator in sampling]
    )
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=draws.dtype)
    return draws.nanquantile(ends, dim=0) - draws.nanmean(dim=0) + observed


def rank_correlation(first: Float[Tensor, "N"], second: Float[Tensor, "N"]) -> float:
    """Spearman's rank correlation; ties share their mean rank, and it is NaN if either argument is constant."""
    a, b = (ranks - ranks.mean() for ranks in (_ranks(first), _ranks(second)))
    return (a @ b / (a.norm() * b.norm())).item()  # 0/0 = NaN


def _ranks(values: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    _, group, size = values.unique(return_inverse=True, return_counts=True)
    return (size.cumsum(0) - (size - 1) / 2)[group].double()
