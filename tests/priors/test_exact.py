"""Exact Gaussian-process regression equals its dense reference and GPyTorch."""

import gpytorch
import jaxtyping
import pytest
import torch
from torch.testing import assert_close

from degp.data import sine
from degp.priors import NNGP, ExactGP
from tests import reference
from tests.fixtures import normal

DATA = sine().to(dtype=torch.float64)


def test_exact_regression_equals_dense():
    x, y, new, prior = normal(6, 2), normal(6, 3, seed=1), normal(4, 2, seed=2), NNGP(2)
    gp = ExactGP.fit(prior, x, y, noise_variance=0.3)
    mean, covariance, evidence = reference.gp_regression(prior(x, x), prior(x, new), prior(new, new), y, 0.3)
    assert_close(gp.mean(new), mean)
    assert_close(gp.covariance(new), covariance)
    assert_close(gp.variance(new, batch_size=3), covariance.diagonal())
    assert_close(gp.log_marginal_likelihood(), evidence)


def test_exact_regression_equals_gpytorch():
    x, y, new = normal(6, 2), normal(6, 1, seed=1), normal(4, 2, seed=2)

    class Theirs(gpytorch.models.ExactGP):
        def forward(self, inputs):
            kernel = gpytorch.kernels.RBFKernel().double()
            return gpytorch.distributions.MultivariateNormal(torch.zeros(len(inputs)).double(), kernel(inputs))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.3
    theirs = Theirs(x, y[:, 0], likelihood).eval()(new)
    ours = ExactGP.fit(gpytorch.kernels.RBFKernel().double(), x, y, noise_variance=0.3)
    assert_close(ours.mean(new)[:, 0], theirs.mean, rtol=1e-6, atol=1e-6)
    assert_close(ours.covariance(new), theirs.covariance_matrix, rtol=1e-6, atol=1e-6)


def test_regression_without_noise_interpolates():
    gp = ExactGP.fit(NNGP(2), DATA.inputs, DATA.targets, noise_variance=0.0)
    assert_close(gp.mean(DATA.inputs), DATA.targets, rtol=0, atol=1e-6)
    assert_close(gp.variance(DATA.inputs), torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-6)


def test_a_negative_noise_variance_is_refused():
    with pytest.raises(ValueError, match=r"noise_variance must not be negative, but it is -1\.0"):
        ExactGP.fit(NNGP(0), DATA.inputs, DATA.targets, noise_variance=-1.0)


def test_targets_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its own message comes first
    with pytest.raises(ValueError, match=r"column per output, \(8, C\), but their shape is \(3, 1\)"):
        ExactGP.fit(NNGP(0), DATA.inputs, torch.zeros(3, 1), noise_variance=1.0)
    with pytest.raises(ValueError, match="targets must be finite, but some are NaN or infinite"):
        ExactGP.fit(NNGP(0), DATA.inputs, DATA.targets / 0, noise_variance=1.0)
