"""Transforms of targets: invertible, with the moments, quantiles and densities that SciPy and quadrature give."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from torch.testing import assert_close

from degp import LowRankGaussian, RegressionPredictive, TransformedPredictive, metrics
from degp.transforms import Identity, Log, transform_named
from tests.fixtures import normal, seeded

TRANSFORMS = [Identity(), Log()]
each = pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.name)
means = st.floats(-5, 5)
variances = st.floats(1e-3, 4)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


UNLIMITED = Log(limit=math.inf)


def prediction(transform, mean, epistemic, aleatoric):
    q = LowRankGaussian(column(mean), column(0.0)[None] + epistemic**0.5, 0.0)
    return TransformedPredictive(RegressionPredictive(q, column(aleatoric)), transform)


def random_prediction(transform, M=3, N=4, C=2):
    q = LowRankGaussian(normal(N, C), 0.15 * normal(M, N, C, seed=1), 0.05)
    return TransformedPredictive(RegressionPredictive(q, 0.05 + 0.1 * normal(N, C, seed=2).square()), transform)


@each
def test_the_inverse_undoes_the_transform(transform):
    y = normal(5, 2).exp()
    assert_close(transform.inverse(transform.forward(y)), y)


@each
def test_the_log_slope_is_the_derivative_of_the_inverse(transform):
    g = normal(5, 1).requires_grad_()
    (slope,) = torch.autograd.grad(transform.inverse(g).sum(), g) if transform.name == "log" else (torch.ones(5, 1),)
    assert_close(transform.log_slope(g.detach()), slope.double().log())


@given(mean=means, epistemic=variances, aleatoric=variances)
def test_moments_of_the_log_are_those_of_scipys_log_normal(mean, epistemic, aleatoric):
    reference = stats.lognorm(s=math.sqrt(epistemic + aleatoric), scale=math.exp(mean))
    predicted = prediction(UNLIMITED, mean, epistemic, aleatoric)
    np.testing.assert_allclose(float(predicted.mean), reference.mean(), rtol=1e-9)
    np.testing.assert_allclose(float(predicted.total), reference.var(), rtol=1e-7)
    np.testing.assert_allclose(float(predicted.std), reference.std(), rtol=1e-7)


@given(mean=means, epistemic=st.floats(1e-3, 1), aleatoric=st.floats(1e-3, 1))
def test_the_parts_of_the_variance_are_those_of_the_law_of_total_variance(mean, epistemic, aleatoric):
    """Var E[y | f] and E Var[y | f], by Gauss-Hermite quadrature over f."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    given_f = stats.lognorm(s=math.sqrt(aleatoric), scale=np.exp(mean + math.sqrt(epistemic) * nodes))
    expected, variance = given_f.mean(), given_f.var()
    predicted = prediction(UNLIMITED, mean, epistemic, aleatoric)
    between = weights @ (expected - weights @ expected) ** 2
    np.testing.assert_allclose(float(predicted.epistemic), between, rtol=1e-6)
    np.testing.assert_allclose(float(predicted.aleatoric), weights @ variance, rtol=1e-6)


@each
@given(mean=means, epistemic=variances, aleatoric=variances, level=st.floats(0.01, 0.99))
def test_quantiles_are_equivariant_and_enclose_the_median(transform, mean, epistemic, aleatoric, level):
    predicted = prediction(transform, mean, epistemic, aleatoric)
    ends, inner = torch.cat(predicted.interval(level)), torch.cat(predicted.interval(level / 2))
    assert_close(transform.forward(ends), torch.cat(predicted.gaussian.interval(level)))
    median = transform.inverse(column(mean))
    assert ends[0] < inner[0] < median < inner[1] < ends[1]


@given(mean=means, epistemic=variances, aleatoric=variances)
def test_the_expected_target_lies_between_the_median_and_the_upper_quantiles(mean, epistemic, aleatoric):
    predicted, s = prediction(UNLIMITED, mean, epistemic, aleatoric), math.sqrt(epistemic + aleatoric)
    beyond = 2 * stats.norm.cdf(0.51 * s) - 1  # E y is the quantile at z = s/2
    assert math.exp(mean) < predicted.mean < predicted.interval(beyond)[1]


@each
@pytest.mark.parametrize("epistemic, aleatoric", [(0.2, 0.1), (1.0, 0.3)])
def test_the_density_integrates_to_the_probability_of_an_interval(transform, epistemic, aleatoric):
    predicted = prediction(transform, 0.4, epistemic, aleatoric)

    def density(y):
        return math.exp(predicted.log_prob(column(y)))

    for level in (0.5, 0.9):
        low, high = (float(end) for end in predicted.interval(level))
        np.testing.assert_allclose(integrate.quad(density, low, high)[0], level, rtol=1e-8)


def test_the_density_of_the_log_is_scipys_and_impossible_targets_have_none():
    predicted, y = random_prediction(Log(), C=1), normal(4, 1, seed=5).exp()
    reference = stats.lognorm(s=predicted.gaussian.std.numpy(), scale=np.exp(predicted.gaussian.mean.numpy()))
    np.testing.assert_allclose(predicted.log_prob(y).numpy(), reference.logpdf(y.numpy())[:, 0])
    y[1], y[2] = 0, -1
    assert predicted.log_prob(y).isneginf().tolist() == [False, True, True, False]


@each
def test_the_covariance_has_the_variances_and_that_of_exponentials(transform):
    predicted = random_prediction(transform)
    blocks = predicted.covariances()
    assert_close(blocks.diagonal(dim1=1, dim2=2), predicted.total.mT)
    assert_close(blocks, blocks.mT)
    if transform.name == "log":  # E yᵢyⱼ = exp(E(gᵢ + gⱼ) + Var(gᵢ + gⱼ)/2)
        m, S = predicted.gaussian.mean[:, 0], predicted.gaussian.covariances()[0]
        joint = (m[1] + m[2] + (S[1, 1] + S[2, 2] + 2 * S[1, 2]) / 2).exp()
        assert_close(blocks[0, 1, 2], joint - predicted.mean[1, 0] * predicted.mean[2, 0])


@each
def test_covariances_of_a_gaussian_are_the_dense_ones(transform):
    predicted = random_prediction(transform).gaussian
    dense = predicted.posterior.covariance().reshape(4, 2, 4, 2) + torch.diag(predicted.aleatoric.flatten()).reshape(
        4, 2, 4, 2
    )
    for c in range(2):
        assert_close(predicted.covariances()[c], dense[:, c, :, c])


@each
def test_draws_have_these_moments(transform):
    predicted = random_prediction(transform)
    draws = predicted.sample(400_000, generator=seeded())
    assert_close(draws.mean(0), predicted.mean, rtol=0.02, atol=0.02)
    assert_close(draws.var(0), predicted.total, rtol=0.06, atol=0.02)


@given(mean=means, epistemic=st.floats(0.25, 1e6), aleatoric=st.floats(1e-3, 1))
def test_far_from_the_data_the_moments_stay_near_the_median_and_intervals_grow(mean, epistemic, aleatoric):
    far, near = (prediction(Log(), mean, k, aleatoric) for k in (epistemic, 0.25))
    assert_close(far.mean, near.mean)
    assert_close(far.total, near.total)
    assert far.mean <= math.exp(mean + 0.125 + aleatoric / 2) * (1 + 1e-9)
    assert far.interval(0.9)[1] >= near.interval(0.9)[1]
    assert_close(far.covariances()[0], far.total)


def test_limited_covariances_are_positive_semidefinite():
    q = LowRankGaussian(normal(5, 1), 3 * normal(2, 5, 1, seed=1), 0.1)
    predicted = TransformedPredictive(RegressionPredictive(q, torch.full((5, 1), 0.2).double()), Log())
    (covariance,) = predicted.covariances()
    assert_close(covariance.diagonal(), predicted.total[:, 0])
    assert torch.linalg.eigvalsh(covariance).min() > 0


@each
def test_uncertainties_add_up(transform):
    predicted = random_prediction(transform)
    assert_close(predicted.total, predicted.epistemic + predicted.aleatoric)
    assert_close(predicted.std, predicted.total.sqrt())


@given(scale=st.floats(0.1, 10), offset=st.floats(-5, 5))
def test_a_rescaled_gaussian_is_that_of_rescaled_targets(scale, offset):
    before = random_prediction(Identity()).gaussian
    after = before.rescaled(*(torch.full((2,), each, dtype=torch.float64) for each in (scale, offset)))
    assert_close(after.mean, scale * before.mean + offset)
    assert_close(after.epistemic, scale**2 * before.epistemic)
    assert_close(after.covariances(), scale**2 * before.covariances())


@given(mean=st.floats(-2, 2), std=st.floats(0.05, 1.5), y=st.floats(-1, 20))
def test_the_crps_of_the_log_is_its_integral(mean, std, y):
    """∫ (F(x) − 1[y ≤ x])² dx, also for targets that the distribution excludes."""
    law = stats.lognorm(s=std, scale=math.exp(mean))
    x = np.concatenate([np.linspace(min(y, 0), 0, 3), law.ppf(np.linspace(1e-9, 1 - 1e-9, 4001)), [y]])
    x = np.unique(np.concatenate([x, np.linspace(0, max(y, law.ppf(1 - 1e-9)), 20_001)]))
    middle = (x[1:] + x[:-1]) / 2
    expected = np.sum((law.cdf(middle) - (y <= middle)) ** 2 * np.diff(x))
    found = metrics.log_normal_crps(column(mean), column(std**2), column(y))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-4)


@each
def test_a_transform_is_found_by_its_name(transform):
    assert transform_named(transform.name) == transform


def test_an_unknown_transform_is_rejected():
    with pytest.raises(ValueError, match="must be one of identity, log, but it is 'sqrt'"):
        transform_named("sqrt")
