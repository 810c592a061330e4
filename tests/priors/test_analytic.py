"""The analytic NN-GP is the recursion of infinitely wide networks, and has the published numbers."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from degp import KroneckerGaussian, ensemble_posterior, kl_divergence
from degp.data import sine
from degp.priors import NNGP, ExactGP, erf, relu
from tests import reference
from tests.fixtures import normal

# the paper's eight points; hidden layers with bias variance 1, a read-out without bias, noise variance 0.04

DATA = sine().to(dtype=torch.float64)
GOLDEN_POINTS = torch.tensor([-3.0, -2.0, 0.0, 2.0, 3.0]).double()[:, None]
GOLDEN = {  # depth: log evidence, mean and standard deviation at the points
    1: (-22.827, [0.171, -0.276, 0.115, -1.577, -3.477], [0.700, 0.325, 0.148, 0.325, 0.700]),
    2: (-18.163, [0.231, -0.186, 0.075, -1.897, -4.061], [0.886, 0.376, 0.162, 0.376, 0.886]),
    3: (-16.316, [0.142, -0.176, 0.057, -2.027, -4.193], [1.018, 0.412, 0.171, 0.412, 1.018]),
}


@pytest.mark.parametrize("depth", GOLDEN)
def test_regression_on_eight_points_gives_the_published_numbers(depth):
    prior = NNGP(depth, weight_variances=2.0, bias_variances=[1.0] * depth + [0.0])
    gp = ExactGP.fit(prior, DATA.inputs, DATA.targets, noise_variance=0.04)
    evidence, mean, std = (torch.tensor(values, dtype=torch.float64) for values in GOLDEN[depth])
    digits = {"rtol": 0, "atol": 6e-4}
    assert_close(gp.log_marginal_likelihood(), evidence, **digits)
    assert_close(gp.mean(GOLDEN_POINTS)[:, 0], mean, **digits)
    assert_close(gp.variance(GOLDEN_POINTS).sqrt(), std, **digits)


DUALS = [(relu, torch.relu), (erf, torch.erf)]


@pytest.mark.parametrize("dual, activation", DUALS)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_nngp_is_the_recursion_by_quadrature(depth, dual, activation):
    x, y = normal(1, 3), normal(1, 3, seed=1)
    weights, biases = [1.5, 2.0, 0.7][: depth + 1], [0.3, 0.0, 0.2][: depth + 1]
    pairs = {"l": (x, x), "r": (y, y), "c": (x, y)}
    k = {pair: weights[0] * float(a @ b.T) / 3 + biases[0] for pair, (a, b) in pairs.items()}
    for w, b in zip(weights[1:], biases[1:], strict=True):
        dense = {"l": (k["l"],) * 3, "r": (k["r"],) * 3, "c": (k["l"], k["r"], k["c"])}
        k = {pair: w * reference.dual(activation, *values) + b for pair, values in dense.items()}
    prior = NNGP(depth, weights, biases, dual)
    assert prior(x, y).item() == pytest.approx(k["c"], abs=1e-4)
    assert prior(x, x).item() == pytest.approx(k["l"], abs=1e-4)


@given(st.integers(0, 3), st.floats(0.1, 10.0))
def test_relu_nngp_without_biases_is_homogeneous(depth, scale):
    k, x, y = NNGP(depth, 2.0, 0.0), normal(4, 3), normal(5, 3, seed=1)
    assert_close(k(scale * x, y), scale * k(x, y))


def test_at_the_origin_only_the_biases_count():
    k = NNGP(2, 2.0, [0.0, 0.0, 0.3])(torch.zeros(1, 3), normal(4, 3))
    assert_close(k, torch.full((1, 4), 0.3, dtype=torch.float64))


@pytest.mark.parametrize("prior", [NNGP(0), NNGP(2), NNGP(2, dual=erf)])
def test_constant_inputs_have_a_kernel_of_rank_one(prior):
    k = prior(torch.ones(4, 3), torch.ones(4, 3))
    assert_close(k, k[:1, :1].expand(4, 4))
    assert k[0, 0] > 0


@pytest.mark.parametrize("x", [torch.tensor([[0.1], [0.1], [2.0]]), torch.ones(3, 1)], ids=["repeated", "constant"])
def test_repeated_inputs_have_the_divergence_of_the_jittered_gram(x):
    gram, g = NNGP(2)(x, x), normal(5, 3, 2)
    q = ensemble_posterior(g, diagonal=0.1)
    jittered = gram + 0.05 * gram.trace() / 3 * torch.eye(3)
    full_q, full_p = reference.covariance(q.deviations, q.diagonal), reference.kronecker(jittered, 2)
    expected = reference.kl_divergence(q.mean, full_q, torch.zeros_like(q.mean), full_p)
    assert_close(kl_divergence(q, KroneckerGaussian.from_gram(gram, 2, jitter=0.05)), expected)


REFUSED = {
    "depth counts hidden layers and must be 0, 1, 2, …, but it is -1": lambda: NNGP(-1),
    "bias_variances must not be negative, but the minimum is": lambda: NNGP(1, bias_variances=[1.0, torch.nan]),
    "same features, at least one, but they have 2 and 3": lambda: NNGP(1)(torch.zeros(4, 2), torch.zeros(4, 3)),
    "same features, at least one, but they have 0 and 0": lambda: NNGP(1)(torch.zeros(4, 0), torch.zeros(4, 0)),
    "weight_variances must not be negative, but the minimum is -2.0": lambda: NNGP(1, [1.0, -2.0]),
    "must be one number or depth + 1 = 3 of them (hidden layers and read-out), but there are 2": lambda: NNGP(
        2, 2.0, [1.0, 1.0]
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_arguments_are_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message]()


@pytest.mark.parametrize("prior, inside", [(NNGP(2), 7), (NNGP(2, bias_variances=0.01), 3)], ids=["default", "0.01"])
def test_default_biases_give_error_bars_that_cover_the_data(prior, inside):
    gp = ExactGP.fit(prior, DATA.inputs, DATA.targets, noise_variance=0.04)
    errors = (DATA.targets - gp.mean(DATA.inputs))[:, 0].abs()
    assert int((errors < 1.645 * (gp.variance(DATA.inputs) + 0.04).sqrt()).sum()) == inside  # 90 % intervals
