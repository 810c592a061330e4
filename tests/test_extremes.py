"""Extreme numbers are handled or refused, never NaN without an error."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from degp import (
    Batch,
    Categorical,
    Ensemble,
    Gaussian,
    LowRankGaussian,
    ensemble_posterior,
    fit,
    kl_divergence,
    methods,
)
from degp.gaussian import KroneckerGaussian
from degp.nets import mlp
from degp.priors import NNGP, ExactGP
from degp.roots import NumericalWarning
from degp.sklearn import DEGPRegressor
from tests.fixtures import normal
from tests.memory import LargestTensor

QUICK = {"steps": 4, "members": 3, "hidden_layers": (8,), "random_state": 0}
SCALES = [1e-12, 1e-6, 1e6, 1e12]


def table(rows=40):
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, 3))
    return X, np.sin(X[:, 0]) + 0.1 * random.standard_normal(rows)


@pytest.mark.parametrize("scale", SCALES)
def test_units_of_the_target_do_not_matter(scale):
    X, y = table()
    mean, std = DEGPRegressor(**QUICK).fit(X, y).predict(X, return_std=True)
    scaled_mean, scaled_std = DEGPRegressor(**QUICK).fit(X, scale * y).predict(X, return_std=True)
    np.testing.assert_allclose(scaled_mean / scale, mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(scaled_std / scale, std, rtol=1e-3)


@pytest.mark.parametrize("scale", SCALES)
def test_units_of_a_feature_do_not_matter(scale):
    X, y = table()
    mean = DEGPRegressor(**QUICK).fit(X, y).predict(X)
    other = X * [scale, 1, 1]
    np.testing.assert_allclose(DEGPRegressor(**QUICK).fit(other, y).predict(other), mean, rtol=1e-3, atol=1e-4)


def test_half_precision_tables_are_read():
    X, y = table()
    few = X.astype(np.float16)
    same = DEGPRegressor(**QUICK).fit(few.astype(np.float64), y).predict(few.astype(np.float64))
    np.testing.assert_allclose(DEGPRegressor(**QUICK).fit(few, y).predict(few), same, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_members_of_any_scale_have_a_finite_divergence(scale):
    q = ensemble_posterior(scale * normal(4, 6, 2, dtype=torch.float32))
    p = KroneckerGaussian.from_gram(torch.eye(6, dtype=torch.float64), 2)
    assert math.isfinite(kl_divergence(q, p))


def test_members_that_agree_exactly_are_refused():
    network = mlp(1, (4,), 1)
    ensemble = Ensemble([copy.deepcopy(network) for _ in range(4)])  # a mean of four alike is exact
    x = torch.linspace(0, 1, 5)[:, None]
    with pytest.raises(ValueError, match="do all members agree exactly"):
        fit(ensemble, Batch(x, x), methods.degp(Gaussian(), NNGP(1)), epochs=1, progress=False)


def test_a_prior_without_full_rank_gets_more_jitter_with_a_warning():
    x = torch.zeros(5, 2)  # five times the same point
    gram = NNGP(2)(x, x)
    with pytest.warns(NumericalWarning, match="was added instead"):
        KroneckerGaussian.from_gram(gram, 1)
    assert math.isfinite(ExactGP.fit(NNGP(2), x, torch.ones(5, 1), noise_variance=0.1).log_marginal_likelihood())


def test_a_million_classes_fit_into_memory():
    M, N, C = 3, 2, 1_000_000
    outputs = normal(M, N, C, dtype=torch.float32)

    with LargestTensor() as largest:
        q = ensemble_posterior(outputs)
        p = KroneckerGaussian.from_gram(torch.eye(N, dtype=torch.float64), C)
        assert math.isfinite(kl_divergence(q, p))
        expected = Categorical(num_draws=4).expected_log_prob(q, torch.zeros(N, dtype=torch.long))
        assert expected.isfinite().all()
    assert largest.elements <= 4 * N * C + N * C  # the members and their mean, or the draws: nothing grows with C²


def test_an_infinite_weight_is_found_at_the_first_step():
    ensemble = Ensemble(lambda: mlp(1, (4,), 1), 3)
    nn.init.constant_(next(ensemble.parameters()), math.inf)
    x = torch.linspace(0, 1, 5)[:, None]
    with pytest.raises(FloatingPointError, match="step 1: the loss is not finite in data, total"):
        fit(ensemble, Batch(x, x), methods.de(Gaussian()), epochs=1, progress=False)


def test_a_variance_below_what_floats_hold_is_refused():
    with pytest.raises(ValueError, match="must not be negative or NaN"):
        LowRankGaussian(torch.zeros(2, 1), torch.zeros(1, 2, 1), float("nan"))
