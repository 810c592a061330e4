"""Scales by evidence: value, gradient and leave-one-out NLL equal their dense references; relevance is found."""

import math

import pytest
import torch
from torch.testing import assert_close

from degp.priors import ExactGP
from degp.priors.evidence import (
    JITTER,
    Scales,
    _gram,
    _leave_one_out_nll,
    _negative_log_evidence,
    most_likely_scales,
)


def double(value):
    return torch.tensor(value, dtype=torch.float64)


def data(targets=1, rows=30, noise=0.1, features=3):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * x[:, :1]) * torch.arange(1, targets + 1)
    return x, y + noise * torch.randn(rows, targets, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_differentiable_kernel_is_the_nngp(depth):
    x, _ = data()
    scales = Scales(depth, (0.5, 2.0, 0.1), 0.3, 1.7, 0.1)
    own = _gram(scales.apply(x), depth, double(0.3), double(1.7))
    assert_close(own, scales.nngp()(scales.apply(x), scales.apply(x)), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("targets", [1, 3])
def test_the_evidence_is_the_marginal_likelihood_of_its_prior(targets):
    x, y = data(targets)
    scales = most_likely_scales(x, y, 2)
    z = scales.apply(x)
    jitter = JITTER * float(scales.nngp()(z, z).diagonal().mean())
    exact = ExactGP.fit(scales.nngp(), z, y, noise_variance=scales.noise_variance + jitter)
    assert exact.log_marginal_likelihood().item() == pytest.approx(
        scales.log_evidence, abs=1e-3
    )  # the kernels round cosines near 1 differently


@pytest.mark.parametrize("targets", [1, 3])
def test_the_gradient_is_that_of_the_dense_evidence(targets):
    x, y = data(targets, rows=8)
    relevance = torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64, requires_grad=True)
    noise = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    gram = _gram(x * relevance, 2, double(0.3), double(1.7))
    value, slope, noise_slope = _negative_log_evidence(gram.detach(), y, noise.detach())
    surrogate = torch.autograd.grad((slope * gram).sum() + noise_slope * noise, (relevance, noise))

    gram = _gram(x * relevance, 2, double(0.3), double(1.7))
    covariance = gram + (noise + JITTER * gram.diagonal().mean().detach()) * torch.eye(8)
    normal = torch.distributions.MultivariateNormal(torch.zeros(8, dtype=torch.float64), covariance)
    dense = -sum(normal.log_prob(column) for column in y.mT)
    assert_close(value, dense.detach())
    assert_close(surrogate, torch.autograd.grad(dense, (relevance, noise)))


def test_leave_one_out_is_leaving_each_row_out():
    x, y = data(2, rows=7)
    scales, noise = Scales(2, (1.0, 0.5, 2.0), 0.4, 1.3, 0.1), 0.1
    gram = _gram(scales.apply(x), 2, double(0.4), double(1.3))
    jitter = JITTER * float(gram.diagonal().mean())
    total = 0.0
    for n in range(7):
        rest = [m for m in range(7) if m != n]
        exact = ExactGP.fit(scales.nngp(), scales.apply(x[rest]), y[rest], noise_variance=noise + jitter)
        point = scales.apply(x[n : n + 1])
        variance = float(exact.variance(point)) + noise + jitter
        error = (y[n] - exact.mean(point)[0]).square()
        total += (0.5 * (math.log(2 * math.pi * variance) + error / variance)).sum()
    assert_close(_leave_one_out_nll(gram, y, double(noise)), total / 14, rtol=1e-6, atol=1e-6)


def test_relevance_is_that_of_the_features_which_matter():
    x, y = data(rows=150, features=6)
    relevance = torch.tensor(most_likely_scales(x, y, 2).relevance)
    assert relevance[0] > 20 * relevance[1:].max()


def test_features_of_one_group_share_their_relevance():
    x, y = data(rows=60)
    one, other, alone = most_likely_scales(x, y, 2, groups=[0, 0, 1]).relevance
    assert one == other != alone


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.3])
def test_noise_is_found_over_decades(noise):
    x, y = data(rows=200, noise=noise, features=1)
    assert most_likely_scales(x, y, 2).noise_variance == pytest.approx(noise**2, rel=0.6)
