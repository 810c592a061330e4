"""Scales by evidence: value, gradient and leave-one-out NLL equal their dense references; relevance is found."""

import math

import pytest
import torch
from torch.testing import assert_close

from degp import Batch
from degp.priors import ExactGP
from degp.priors.evidence import (
    ACTIVATIONS,
    JITTER,
    Scales,
    _gram,
    _leave_one_out_nll,
    _negative_log_evidence,
    _root,
    most_likely_scales,
    noise_by_target,
)
from tests.fixtures import seeded


def double(value):
    return torch.tensor(value, dtype=torch.float64)


def data(targets=1, rows=30, noise=0.1, features=3):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * x[:, :1]) * torch.arange(1, targets + 1)
    return x, y + noise * torch.randn(rows, targets, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_the_differentiable_kernel_is_the_nngp(depth, activation):
    x, _ = data()
    scales = Scales(depth, (0.5, 2.0, 0.1), 0.3, 1.7, 0.1, activation=activation)
    own = _gram(scales.apply(x), depth, double(0.3), double(1.7), ACTIVATIONS[activation].differentiable)
    assert_close(own, scales.nngp()(scales.apply(x), scales.apply(x)), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_kernel_of_a_graph_is_the_nngp(depth, activation):
    scales = Scales(depth, (0.5, 2.0, 0.1), 0.3, 1.7, 0.1, activation=activation)
    left, right = data()[0], data(rows=7)[0] + 0.1
    cross, variance = scales.cross_gram(left, right, ACTIVATIONS[activation].dual)
    assert_close(cross, scales.nngp()(left, right))
    assert_close(variance, scales.nngp()(left, left).diagonal())


@pytest.mark.parametrize("weighted", [False, True])
def test_each_target_has_the_noise_of_highest_evidence(weighted):
    """Of all trial values, by the exact process of that target alone, under the prior on the noise."""
    x, y = data(3, noise=0.0)
    y = y + torch.tensor([0.03, 0.3, 3.0]) * torch.randn(y.shape, dtype=y.dtype, generator=seeded())
    w = 0.2 + torch.rand(len(x), dtype=x.dtype, generator=seeded()) if weighted else torch.ones_like(x[:, 0])
    scales = Scales(1, (1.0, 1.0, 1.0), 0.5, 2.0, 0.1)
    found = noise_by_target(scales, Batch(x, y, weights=w if weighted else None))
    assert found[0] < found[1] < found[2]

    def density(noise, c):
        exact = ExactGP.fit(scales.nngp(), x, y[:, [c]], noise_variance=noise / w)
        return float(exact.log_marginal_likelihood()) - 0.5 * ((noise / 0.01).log() / 4).square()

    for c, noise in enumerate(found):
        assert density(noise, c) > max(density(1.3 * noise, c), density(noise / 1.3, c))


def test_a_single_target_keeps_the_noise_of_its_scales():
    x, y = data()
    scales = most_likely_scales(x, y, 1)
    assert noise_by_target(scales, Batch(scales.apply(x), y)).tolist() == [scales.noise_variance]


@pytest.mark.parametrize("targets", [1, 3])
def test_the_evidence_is_the_marginal_likelihood_of_its_prior(targets):
    x, y = data(targets)
    scales = most_likely_scales(x, y, 2)
    z = scales.apply(x)
    exact = ExactGP.fit(scales.nngp(), z, y, noise_variance=scales.noise_variance)
    # the kernels round cosines near 1 differently
    assert exact.log_marginal_likelihood().item() == pytest.approx(scales.log_evidence, abs=1e-3)


def test_the_noise_of_a_simulator_includes_the_jitter_of_the_evidence():
    """Without noise in the targets the jitter is all there is; error bars that lack it are too short."""
    x = torch.rand(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.sin(3 * x[:, :1]) + x[:, 1:] ** 2
    scales = most_likely_scales(x, y, 2, activation="erf")
    z = scales.apply(x)
    exact = ExactGP.fit(scales.nngp(), z, y, noise_variance=scales.noise_variance)
    assert scales.noise_variance < 1e-5
    assert exact.log_marginal_likelihood().item() == pytest.approx(scales.log_evidence, rel=1e-4)
    jitter = JITTER * float(scales.nngp()(z, z).diagonal().mean())
    sharper = ExactGP.fit(scales.nngp(), z, y, noise_variance=scales.noise_variance - 0.9 * jitter)
    assert sharper.log_marginal_likelihood().item() != pytest.approx(scales.log_evidence, rel=1e-3)


WEIGHTS = {"alike": [1.0] * 8, "of their own": [0.1, 1.0, 2.5, 0.7, 1.3, 0.4, 4.0, 1.0]}
weights = pytest.mark.parametrize("weights", [torch.tensor(w).double() for w in WEIGHTS.values()], ids=WEIGHTS)


@weights
@pytest.mark.parametrize("targets", [1, 3])
def test_the_gradient_is_that_of_the_dense_evidence(targets, weights):
    x, y = data(targets, rows=8)
    relevance = torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64, requires_grad=True)
    noise = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    gram = _gram(x * relevance, 2, double(0.3), double(1.7), ACTIVATIONS["erf"].differentiable)
    value, slope, noise_slope = _negative_log_evidence(gram.detach(), y, noise.detach(), weights)
    surrogate = torch.autograd.grad((slope * gram).sum() + noise_slope * noise, (relevance, noise))

    gram = _gram(x * relevance, 2, double(0.3), double(1.7), ACTIVATIONS["erf"].differentiable)
    covariance = gram + torch.diag(noise / weights + JITTER * gram.diagonal().mean().detach())
    normal = torch.distributions.MultivariateNormal(torch.zeros(8, dtype=torch.float64), covariance)
    dense = -sum(normal.log_prob(column) for column in y.mT)
    assert_close(value, dense.detach())
    assert_close(surrogate, torch.autograd.grad(dense, (relevance, noise)))


@pytest.mark.parametrize("activation", ["relu", "erf"])
def test_the_gradient_of_the_gram_matrix_is_that_of_finite_differences(activation):
    x, _ = data(1, rows=5)
    relevance, bias, output = (double(v).requires_grad_() for v in ([0.5, 2.0, 0.1], 0.3, 1.7))
    dual = ACTIVATIONS[activation].differentiable
    assert torch.autograd.gradcheck(lambda s, b, w: _gram(x * s, 2, b, w, dual), (relevance, bias, output))


def test_a_gram_matrix_without_a_root_is_an_error():
    with pytest.raises(ValueError, match="positive definite"):
        _negative_log_evidence(-torch.eye(3).double(), double([[1.0]] * 3), double(0.1), torch.ones(3).double())


def test_a_root_with_the_largest_jitter_has_the_noise():
    """Negative by 5e-4: too much for all smaller jitters."""
    gram, noise = double([[1.0, 1.0005], [1.0005, 1.0]]), double([1e-5, 2e-5])
    root = _root(gram, noise)
    lifted = gram + torch.diag(noise)
    assert_close(root @ root.mT, lifted + 1e-3 * lifted.diagonal().mean() * torch.eye(2).double())


@weights
def test_leave_one_out_is_leaving_each_row_out(weights):
    x, y = data(2, rows=8)
    gram = _gram(x, 2, double(0.4), double(1.3), ACTIVATIONS["relu"].differentiable)
    dense = gram + torch.diag(0.1 / weights + JITTER * gram.diagonal().mean())
    total = 0.0
    for n in range(8):
        rest = [m for m in range(8) if m != n]
        gain = torch.linalg.solve(dense[rest][:, rest], dense[rest, n])
        variance = dense[n, n] - gain @ dense[rest, n]
        error = (y[n] - gain @ y[rest]).square()
        total += (0.5 * ((2 * math.pi * variance).log() + error / variance)).sum()
    assert_close(_leave_one_out_nll(gram, y, double(0.1), weights), total / 16)


def test_weights_of_one_change_no_scale_and_weights_of_zero_are_absent_rows():
    x, y = data(rows=40)
    ones, none = (most_likely_scales(x, y, 2, weights=w, generator=seeded()) for w in (torch.ones(40), None))
    assert ones == none
    kept = torch.arange(40) % 3 > 0
    absent = most_likely_scales(x, y, 2, weights=kept.double(), generator=seeded())
    removed = most_likely_scales(x[kept], y[kept], 2, generator=seeded())
    assert absent.log_evidence == pytest.approx(removed.log_evidence, abs=1e-3)  # in another order
    assert absent.relevance == pytest.approx(removed.relevance, rel=1e-2)


def test_noise_is_that_of_a_row_of_weight_one():
    """Half of the rows have ten times the noise variance, and say so by a tenth of the weight."""
    x, y = data(rows=200, noise=0.0, features=1)
    weights = torch.where(torch.arange(200) % 2 == 0, 1.0, 0.1).double()
    noisy = y + 0.1 * torch.randn(200, 1, generator=torch.Generator().manual_seed(1)) / weights.sqrt()[:, None]
    assert most_likely_scales(x, noisy, 2, weights=weights).noise_variance == pytest.approx(0.01, rel=0.4)
    assert most_likely_scales(x, noisy, 2).noise_variance == pytest.approx(0.055, rel=0.4)


def test_relevance_is_that_of_the_features_which_matter():
    x, y = data(rows=150, features=6)
    relevance = torch.tensor(most_likely_scales(x, y, 2).relevance)
    assert relevance[0] > 20 * relevance[1:].max()


def test_features_of_one_group_share_their_relevance():
    x, y = data(rows=60)
    one, other, alone = most_likely_scales(x, y, 2, groupings=[[0, 0, 1]]).relevance
    assert one == other != alone


def test_groups_may_have_any_numbers():
    x, y = data(rows=60)
    found = [most_likely_scales(x, y, 2, groupings=[groups], generator=seeded()) for groups in ([0, 0, 1], [3, 3, 7])]
    assert found[0] == found[1]
    again = most_likely_scales(x, y, 2, groupings=[[3, 3, 7]], start=found[0], steps=5, generator=seeded())
    assert again.relevance == pytest.approx(found[0].relevance, rel=0.2)


def test_groupings_and_weights_that_leave_nothing_to_fit_are_refused():
    x, y = data()
    with pytest.raises(ValueError, match="the group of each of the 3 features, but it has 1"):
        most_likely_scales(x, y, 2, groupings=[[0]])
    with pytest.raises(ValueError, match="a row of positive weight, but none of the 30 rows has one"):
        most_likely_scales(x, y, 2, weights=torch.zeros(30))


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.3])
def test_noise_is_found_over_decades(noise):
    x, y = data(rows=200, noise=noise, features=1)
    assert most_likely_scales(x, y, 2).noise_variance == pytest.approx(noise**2, rel=0.6)
