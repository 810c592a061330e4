"""A centred prior is that of functions without their average."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from degp.nets import mlp_features
from degp.priors import NNGP, Centred, ExactGP, KernelPrior, MonteCarloNNGP
from tests.fixtures import normal, seeded

DEEP = NNGP(depth=12)  # nearly constant


@given(seed=st.integers(0, 1000), N=st.integers(2, 7), variance=st.floats(0.1, 10), offset=st.floats(0, 2))
def test_gram_is_that_of_functions_without_their_average(seed, N, variance, offset):
    x = normal(N, 3, seed=seed)
    H = torch.eye(N, dtype=x.dtype) - 1 / N
    gram = Centred(DEEP, variance=variance, offset_variance=offset).kernel()(x, x)
    expected = H @ DEEP.kernel()(x, x) @ H
    expected = variance * expected / expected.diagonal().mean() + offset
    assert_close(gram, expected, atol=1e-9, rtol=1e-6)
    assert gram.diagonal().mean().item() == pytest.approx(variance + offset)
    assert torch.linalg.eigvalsh(gram).min() > -1e-8 * (variance + offset)


def test_gram_is_the_covariance_of_centred_draws():
    x, points = normal(6, 3), normal(4, 3, seed=1)
    both = torch.cat([points, x])
    f = torch.distributions.MultivariateNormal(torch.zeros(10).double(), NNGP(depth=1).kernel()(both, both))
    torch.manual_seed(0)
    draws = f.sample((100_000,))
    draws = draws - draws[:, :4].mean(1, keepdim=True)
    expected = draws.mT @ draws / len(draws)
    expected = 2 * expected / expected.diagonal()[:4].mean() + 0.5
    prior = Centred(NNGP(depth=1), variance=2.0, offset_variance=0.5, reference=points)
    assert_close(prior.kernel()(x, x), expected[4:, 4:], atol=0.05, rtol=0.02)


def test_with_a_reference_it_is_one_kernel_for_all_points():
    left, right = normal(4, 3), normal(5, 3, seed=1)
    kernel = Centred(DEEP, reference=normal(6, 3, seed=2)).kernel()
    whole = kernel(both := torch.cat([left, right]), both)
    assert_close(kernel(left, right), whole[:4, 4:])
    assert_close(kernel(left, left), whole[:4, :4])
    assert_close(kernel(right, left), whole[4:, :4])
    assert kernel(left, right[:0]).shape == (4, 0)
    assert ExactGP.fit(Centred(DEEP, reference=left), left, left[:, :1], noise_variance=0.1).mean(right).shape == (5, 1)


def test_two_sets_of_points_need_a_reference_and_variances_must_be_valid():
    with pytest.raises(ValueError, match="give `Centred` a reference"):
        Centred(DEEP).kernel()(normal(4, 3), normal(5, 3))
    for bad in ({"variance": 0.0}, {"variance": math.nan}, {"offset_variance": -1.0}):
        with pytest.raises(ValueError, match="must be positive"):
            Centred(DEEP, **bad)
    with pytest.raises(ValueError, match="need at least two points to vary, but it has 1"):
        Centred(DEEP, reference=normal(1, 3))


def test_of_a_constant_prior_only_the_offset_remains():
    x = normal(4, 3)
    gram = Centred(KernelPrior(lambda a, b: torch.ones(len(a), len(b)).double()), offset_variance=0.3).kernel()(x, x)
    assert_close(gram, torch.full((4, 4), 0.3).double())


def test_networks_are_resampled_by_the_generator():
    prior, x = Centred(MonteCarloNNGP(mlp_features(3, [8]), num_draws=2)), normal(4, 3, dtype=torch.float32)
    first, again, other = (prior.kernel(generator=seeded(seed))(x, x) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
