"""The ensemble's Gaussian has the members' empirical moments and the λ of the paper, constant for backward."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from degp import AverageEigenvalue, KroneckerGaussian, PointwiseAverage, ensemble_posterior, kl_divergence
from tests.fixtures import normal

SHAPES = [(2, 1, 1), (5, 4, 3), (3, 7, 1), (12, 2, 2)]


def empirical(g):
    """The members' covariance by numpy, dense."""
    return torch.from_numpy(np.atleast_2d(np.cov(g.flatten(1).numpy(), rowvar=False, bias=True)))


@pytest.mark.parametrize("M, N, C", SHAPES)
def test_covariance_is_the_empirical_one_plus_lambda(M, N, C):
    g = normal(M, N, C)
    q = ensemble_posterior(g, diagonal=0.3)
    assert_close(q.mean, g.mean(0))
    assert_close(q.covariance(), empirical(g) + 0.3 * torch.eye(N * C))


@pytest.mark.parametrize("M, N, C", SHAPES)
def test_lambda_is_a_share_of_the_average_eigenvalue(M, N, C):
    g = normal(M, N, C)
    eigenvalues = torch.linalg.eigvalsh(empirical(g))
    assert_close(
        ensemble_posterior(g, diagonal=AverageEigenvalue(0.2)).diagonal, (0.2 * eigenvalues.mean()).expand(N, C)
    )


def test_lambda_by_default_is_five_percent():
    g = normal(5, 4, 3)
    assert_close(ensemble_posterior(g).diagonal, 0.05 * torch.linalg.eigvalsh(empirical(g)).mean().expand(4, 3))


@pytest.mark.parametrize("rule", [AverageEigenvalue(0.1), PointwiseAverage(0.1)])
def test_lambda_is_constant_for_backward(rule):
    g, p = normal(4, 3, 2).requires_grad_(), KroneckerGaussian.from_gram(torch.eye(3), 2)
    number = ensemble_posterior(g, diagonal=rule).diagonal.detach()
    by_rule, by_number = (
        torch.autograd.grad(kl_divergence(ensemble_posterior(g, diagonal=diagonal), p), g)[0]
        for diagonal in (rule, lambda deviations: number)
    )
    assert_close(by_rule, by_number)


def test_lambda_of_a_point_is_independent_of_the_other_points():
    g, rule = normal(5, 6, 2), PointwiseAverage(0.2)
    together = ensemble_posterior(g, diagonal=rule)
    for n in range(6):
        alone = ensemble_posterior(g[:, n : n + 1], diagonal=rule)
        assert_close(together.covariances()[n : n + 1], alone.covariances())
        assert_close(alone.diagonal, 0.2 * empirical(g[:, n : n + 1]).trace().expand(1, 2) / 2)


def test_the_rules_agree_on_a_single_point():
    g = normal(5, 1, 3)
    assert_close(AverageEigenvalue()(g).expand(1, 3), PointwiseAverage()(g))


def test_adding_a_function_to_all_members_moves_the_mean_alone():
    g, shift = normal(5, 4, 3), normal(1, 4, 3, seed=1)[0]
    assert_close(ensemble_posterior(g + shift).mean, ensemble_posterior(g).mean + shift)
    assert_close(ensemble_posterior(g + shift).covariance(), ensemble_posterior(g).covariance())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_outputs_keep_their_deviations(dtype):
    g = (100 + normal(5, 4, 3)).to(dtype)  # deviations that the mean would swallow
    assert_close(ensemble_posterior(g, diagonal=0.0).covariance(), empirical(g.double()).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", [AverageEigenvalue, PointwiseAverage])
@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_epsilon_must_be_positive(rule, epsilon):
    with pytest.raises(ValueError, match=f"epsilon is a share .* must be positive, but it is {epsilon}"):
        rule(epsilon)


def test_one_member_has_no_covariance():
    with pytest.raises(
        ValueError, match=r"at least two members, but there is 1; .* train a single network with .*\.de"
    ):
        ensemble_posterior(normal(1, 4, 3))
