"""Intervals and correlations agree with scipy, and bootstrap intervals have their coverage."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch.testing import assert_close

from degp.report.evaluation import nothing
from degp.report.statistics import (
    Resampling,
    bootstrap_intervals,
    fraction_interval,
    poisson_binomial,
    rank_correlation,
)
from tests.report.cases import seeded


@pytest.mark.parametrize("N", [1, 2, 7, 64, 413])
def test_poisson_binomial_is_binomial_for_equal_probabilities(N):
    expected = torch.from_numpy(stats.binom.pmf(range(N + 1), N, 0.9))
    found = poisson_binomial(torch.full((N,), 0.9, dtype=torch.float64))
    assert_close(found[: N + 1], expected, atol=1e-13, rtol=0)
    assert_close(found[N + 1 :], torch.zeros_like(found[N + 1 :]), atol=1e-13, rtol=0)


def test_poisson_binomial_equals_the_recursion_over_rows():
    p = torch.rand(37, generator=seeded(), dtype=torch.float64)
    pmf = torch.ones(1, dtype=torch.float64)
    for each in p:
        pmf = torch.cat([pmf * (1 - each), pmf.new_zeros(1)]) + torch.cat([pmf.new_zeros(1), pmf * each])
    assert_close(poisson_binomial(p)[:38], pmf, atol=1e-13, rtol=0)


@given(st.integers(1, 500), st.floats(0.05, 0.99))
def test_fraction_interval_contains_its_probability(N, p):
    low, high = (round(end * N) for end in fraction_interval(torch.full((N,), p, dtype=torch.float64)))
    assert stats.binom.cdf(high, N, p) - stats.binom.cdf(low - 1, N, p) >= 0.99 - 1e-9
    assert stats.binom.cdf(low - 1, N, p) <= 0.005 + 1e-9


def test_rank_correlation_equals_scipy():
    first = torch.randint(9, (80,), generator=seeded()).double()
    second = first + torch.randint(9, (80,), generator=seeded(1)).double()
    assert_close(rank_correlation(first, second), float(stats.spearmanr(first, second).statistic))


def test_bootstrap_intervals_cover_the_true_value():
    generator, covered = seeded(), []
    for _ in range(200):
        errors = torch.randn(150, generator=generator, dtype=torch.float64)

        def rmse(rows, errors=errors):
            return errors[rows].square().mean().sqrt()[None]

        low, high = bootstrap_intervals(rmse, rmse(slice(None)), 150, sampling=Resampling(100, generator, nothing))
        covered.append(low.item() <= 1 <= high.item())
    assert 0.88 <= sum(covered) / len(covered) <= 0.99


def test_bootstrap_intervals_of_a_biased_statistic_are_centred_on_its_value():
    """The number of distinct rows falls to 63 % in a resample, and would lie outside its own interval."""

    def distinct(rows):
        return torch.tensor([len(rows.unique())], dtype=torch.float64)

    observed = distinct(torch.arange(200))
    low, high = bootstrap_intervals(distinct, observed, 200, sampling=Resampling(100, seeded(), nothing))
    assert low.item() < 200 < high.item()
