"""Regression metrics agree with scikit-learn and scipy, and with values computed by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn import metrics as sklearn
from torch.testing import assert_close

from degp import metrics
from tests.metrics.cases import gaussian_case, seeds


@pytest.mark.parametrize("N, C", [(1, 1), (7, 1), (30, 3)])
def test_gaussian_nll_is_the_normal_log_density(N, C):
    mean, variance, targets = gaussian_case(0, N, C)
    log_density = stats.norm.logpdf(targets.numpy(), mean.numpy(), variance.sqrt().numpy())
    assert metrics.gaussian_nll(mean, variance, targets) == pytest.approx(-log_density.sum(-1).mean(), rel=1e-13)


def test_point_errors_equal_sklearn():
    mean, _, targets = gaussian_case(1)
    assert metrics.rmse(mean, targets) == pytest.approx(math.sqrt(sklearn.mean_squared_error(targets, mean)))
    assert metrics.mae(mean, targets) == pytest.approx(sklearn.mean_absolute_error(targets, mean))


@pytest.mark.parametrize("mean, std, target", [(0.0, 1.0, 0.0), (1.0, 0.5, 3.0), (-2.0, 3.0, -2.5)])
def test_crps_equals_its_integral(mean, std, target):
    below = integrate.quad(lambda x: stats.norm.cdf(x, mean, std) ** 2, -np.inf, target)[0]
    above = integrate.quad(lambda x: stats.norm.sf(x, mean, std) ** 2, target, np.inf)[0]
    column = [torch.tensor([[value]], dtype=torch.float64) for value in (mean, std**2, target)]
    assert metrics.crps(*column) == pytest.approx(below + above, rel=1e-6)


@given(seeds)
def test_crps_is_positive_and_becomes_the_absolute_error(seed):
    mean, variance, targets = gaussian_case(seed)
    error = metrics.mae(mean, targets)
    most = (
        error + (math.sqrt(2 / math.pi) - 1 / math.sqrt(math.pi)) * variance.sqrt().mean().item()
    )  # z erf ≤ |z|, φ ≤ φ(0)
    assert 0 < metrics.crps(mean, variance, targets) < most
    assert metrics.crps(mean, torch.full_like(mean, 1e-24), targets) == pytest.approx(error, rel=1e-9)


def test_pit_is_the_normal_distribution_function():
    mean, variance, targets = gaussian_case(2)
    expected = stats.norm.cdf(targets.numpy(), mean.numpy(), variance.sqrt().numpy())
    assert_close(metrics.pit(mean, variance, targets), torch.from_numpy(expected))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9, 0.999])
def test_interval_metrics_equal_scipy_intervals(level):
    mean, variance, targets = gaussian_case(3, N=300)
    y = targets.numpy()
    lower, upper = stats.norm.interval(level, mean.numpy(), variance.sqrt().numpy())
    score = upper - lower + 2 / (1 - level) * (np.maximum(lower - y, 0) + np.maximum(y - upper, 0))
    assert metrics.coverage(mean, variance, targets, level) == pytest.approx(((lower <= y) & (y <= upper)).mean())
    assert metrics.interval_width(variance, level) == pytest.approx((upper - lower).mean())
    assert metrics.interval_score(mean, variance, targets, level) == pytest.approx(score.mean())


@given(seeds, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_coverage_and_width_grow_with_level(seed, one, other):
    mean, variance, targets = gaussian_case(seed)
    low, high = sorted([one, other])
    assert metrics.coverage(mean, variance, targets, low) <= metrics.coverage(mean, variance, targets, high)
    assert metrics.interval_width(variance, low) <= metrics.interval_width(variance, high)


def test_calibration_error_counts_scipy_intervals():
    mean, variance, targets = gaussian_case(4)
    expected = np.linspace(0, 1, 100)
    lower, upper = stats.norm.interval(expected[:, None, None], mean.numpy(), variance.sqrt().numpy())
    observed = ((lower <= targets.numpy()) & (targets.numpy() <= upper)).mean((1, 2))
    curve = metrics.calibration_curve(mean, variance, targets)
    assert_close(curve.expected, torch.from_numpy(expected))
    assert_close(curve.observed, torch.from_numpy(observed))
    assert metrics.calibration_error(mean, variance, targets) == pytest.approx(np.abs(observed - expected).mean())


def test_intervals_are_closed():
    """A target on the mean lies in the interval of level 0, which is the mean alone."""
    curve = metrics.calibration_curve(torch.zeros(4, 1), torch.ones(4, 1), torch.tensor([[0.0], [0.0], [0.0], [1.0]]))
    assert curve.observed[[0, -1]].tolist() == [0.75, 1.0]


def test_calibration_of_exact_quantiles_is_nearly_perfect():
    """Targets on the quantiles of the prediction are calibrated to 1/N; with four times the variance they are not."""
    N = 1000
    targets = torch.from_numpy(stats.norm.ppf((np.arange(N) + 0.5) / N))[:, None]
    mean, variance = torch.zeros_like(targets), torch.ones_like(targets)
    assert metrics.calibration_error(mean, variance, targets) < 1 / N
    assert metrics.miscalibration_area(mean, variance, targets) < 1 / N
    assert metrics.coverage(mean, 4 * variance, targets, 0.5) == pytest.approx(
        2 * stats.norm.cdf(2 * 0.67449) - 1, abs=2 / N
    )
    assert metrics.calibration_error(mean, 4 * variance, targets) > 0.1


def test_miscalibration_area_by_hand():
    """Levels 0, ½, 1: a triangle of area ¼ below the diagonal if no target is in the half interval, above if all."""
    mean, variance = torch.zeros(2, 1), torch.ones(2, 1)
    assert metrics.miscalibration_area(mean, variance, torch.full((2, 1), 5.0), num_levels=3) == pytest.approx(0.25)
    assert metrics.miscalibration_area(mean, variance, torch.full((2, 1), 0.1), num_levels=3) == pytest.approx(0.25)


def test_miscalibration_area_of_a_curve_that_crosses_the_diagonal():
    """Levels 0, ⅓, ⅔, 1 and observed 0, ½, ½, 1: gaps 0, ⅙, −⅙, 0, so triangles of areas 1/36, 1/72, 1/72, 1/36."""
    targets = torch.tensor([[0.1], [5.0]])
    area = metrics.miscalibration_area(torch.zeros(2, 1), torch.ones(2, 1), targets, num_levels=4)
    assert area == pytest.approx(1 / 36 + 2 / 72 + 1 / 36)
