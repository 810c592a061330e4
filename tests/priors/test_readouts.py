"""Read-outs given data: the dense formula by the smaller matrix; weights count points; draws are of the posterior."""

import pytest
import torch
from torch.testing import assert_close

from degp.priors.readouts import conditioned_readouts
from tests.fixtures import normal

NOISE = torch.tensor(0.3, dtype=torch.float64)


@pytest.mark.parametrize("N, F, K", [(1, 1, 1), (4, 9, 2), (9, 4, 1), (5, 5, 3)])
def test_readouts_equal_the_dense_formula(N, F, K):
    """a + SΦᵀ(ΦSΦᵀ + σ²W⁻¹)⁻¹(y − Φa)"""
    prior, features, observed = normal(F, K), normal(N, F, seed=1), normal(N, K, seed=2)
    S, w = normal(F, seed=3).exp(), normal(N, seed=4).exp()
    gain = torch.diag(S) @ features.mT
    dense = prior + gain @ torch.linalg.inv(features @ gain + torch.diag(NOISE / w)) @ (observed - features @ prior)
    assert_close(conditioned_readouts(prior, features, observed, S, NOISE, w), dense)


@pytest.mark.parametrize("F", [3, 40])
def test_a_weight_of_two_counts_as_two_points_and_zero_as_none(F):
    prior, features, observed = normal(F, 1), normal(6, F, seed=1), normal(6, 1, seed=2)
    w = torch.tensor([2.0, 1.0, 0.0, 1.0, 2.0, 1.0], dtype=torch.float64)
    repeated = torch.tensor([0, 0, 1, 3, 4, 4, 5])
    one = conditioned_readouts(prior, features, observed, torch.ones_like(features[0]), NOISE, w)
    two = conditioned_readouts(prior, features[repeated], observed[repeated], torch.ones_like(features[0]), NOISE)
    assert_close(one, two)


@pytest.mark.parametrize("N, F", [(3, 6), (6, 3)])
def test_draws_have_the_moments_of_the_posterior(N, F):
    """N((ΦᵀΦ/σ² + I)⁻¹Φᵀy/σ², (ΦᵀΦ/σ² + I)⁻¹)"""
    features, y, draws = normal(N, F, seed=1), normal(N, 1, seed=2), 40_000
    observed = y + NOISE.sqrt() * normal(N, draws, seed=3)
    found = conditioned_readouts(normal(F, draws), features, observed, torch.ones_like(features[0]), NOISE)
    covariance = torch.linalg.inv(features.mT @ features / NOISE + torch.eye(F, dtype=torch.float64))
    assert_close(found.mean(1), (covariance @ features.mT @ y / NOISE).squeeze(1), rtol=0, atol=0.03)
    assert_close(torch.cov(found), covariance, rtol=0, atol=0.03)
