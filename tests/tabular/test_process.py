"""The exact process of a table: its predictions, leave-one-out scores, and its weight beside an ensemble."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from degp.gaussian import LowRankGaussian
from degp.predictive import RegressionPredictive
from degp.priors.evidence import Scales
from degp.tabular.process import Process, best_process
from degp.typing import Batch, joined
from tests.fixtures import normal

SCALES = Scales(2, (0.7, 1.5), 0.4, 1.2, 0.05)


def rows(count=12, targets=1, weights=None):
    inputs = normal(count, 2)
    values = torch.sin(2 * inputs[:, :1]) * torch.arange(1, targets + 1) + 0.2 * normal(count, targets, seed=1)
    return Batch(inputs, values, weights=weights)


@pytest.mark.parametrize("weights", [None, torch.linspace(0.5, 2, 12, dtype=torch.float64)])
@pytest.mark.parametrize("targets", [1, 2])
def test_predictions_are_the_dense_posterior(targets, weights):
    data, points = rows(targets=targets, weights=weights), normal(5, 2, seed=3)
    process = Process.fit(SCALES, data)
    kernel, x, z = SCALES.nngp(), SCALES.apply(data.inputs), SCALES.apply(points)
    gram = kernel(x, x)
    noise = 0.05 / (torch.ones(12).double() if weights is None else weights)
    gain = torch.linalg.solve(gram + torch.diag(noise), kernel(x, z)).mT
    covariance = kernel(z, z) - gain @ kernel(x, z)
    joint, marginal = process.predictive(points, joint=True), process.predictive(points)
    assert_close(marginal.mean, gain @ data.targets)
    assert_close(marginal.epistemic, covariance.diagonal()[:, None].expand(5, targets))
    dense = torch.zeros(5, targets, 5, targets, dtype=torch.float64)
    for c in range(targets):
        dense[:, c, :, c] = covariance
    assert_close(joint.posterior.covariance(), dense.reshape(5 * targets, 5 * targets))
    assert_close(marginal.aleatoric, torch.full((5, targets), 0.05, dtype=torch.float64))


def test_leave_one_out_is_fitting_without_each_row():
    data = rows()
    process, nll, scores = Process.fit(SCALES, data), [], []
    for n in range(12):
        rest = torch.tensor([m for m in range(12) if m != n])
        predictive = Process.fit(SCALES, data[rest]).predictive(data.inputs[n : n + 1])
        nll.append(-predictive.log_prob(data.targets[n : n + 1]))
        scores.append(((data.targets[n] - predictive.mean[0]).abs() / predictive.std[0]).amax()[None])
    assert_close(process.leave_one_out_nll(), torch.cat(nll), rtol=1e-5, atol=1e-6)
    assert_close(process.leave_one_out_scores(), torch.cat(scores), rtol=1e-5, atol=1e-6)


def test_conditioning_is_fitting_to_all_rows():
    data, new, points = rows(), rows(5), normal(4, 2, seed=2)
    one, other = Process.fit(SCALES, data).conditioned(new), Process.fit(SCALES, joined(data, new))
    assert_close(one.predictive(points).mean, other.predictive(points).mean)


def test_a_process_is_the_same_for_scaled_inputs():
    data, points = rows(), normal(4, 2, seed=2)
    factors = (0.3, 2.0)
    process = Process.fit(SCALES, data)
    scaled = process.relative_to(factors).predictive(points * torch.tensor(factors))
    assert_close(scaled.mean, process.predictive(points).mean)
    assert_close(scaled.epistemic, process.predictive(points).epistemic)


def test_the_average_has_the_moments_of_the_mixture():
    """Joint draws of either component with its weight have the served mean and covariance."""
    data, points = rows(targets=2), normal(3, 2, seed=2)
    process = Process.fit(SCALES, data, weight=0.25)
    q = LowRankGaussian(normal(3, 2, seed=4), normal(4, 3, 2, seed=5), 0.1)
    ensemble, own = RegressionPredictive(q, torch.full((3, 2), 0.3).double()), process.predictive(points, joint=True)
    served = process.averaged(ensemble, own)
    first, second = (
        p.posterior.covariance() + torch.outer(p.mean.flatten(), p.mean.flatten()) for p in (ensemble, own)
    )
    mean = 0.75 * ensemble.mean + 0.25 * own.mean
    assert_close(served.mean, mean)
    assert_close(
        served.posterior.covariance(), 0.75 * first + 0.25 * second - torch.outer(mean.flatten(), mean.flatten())
    )
    assert_close(served.aleatoric, torch.full((3, 2), 0.75 * 0.3 + 0.25 * 0.05, dtype=torch.float64))


@pytest.mark.parametrize(
    "margin, has_every_row, weight", [(0.1, True, 1.0), (0.1, False, 1.0), (-0.1, True, 0.5), (-0.1, False, 0.0)]
)
def test_an_ensemble_that_fits_its_own_rows_worse_than_the_process_fits_new_ones_is_left_out(
    margin, has_every_row, weight
):
    process = Process.fit(SCALES, rows())
    nll = float(process.leave_one_out_nll().mean()) + margin
    assert process.weighed_against(nll, has_every_row=has_every_row).weight == weight


def test_widening_makes_leave_one_out_errors_as_large_as_they_should_be():
    data, points = rows(40), normal(4, 2, seed=2)
    sure = Process.fit(Scales(2, (0.7, 1.5), 0.4, 0.05, 0.002), data)
    wide = sure.widened()
    assert float(sure._standardised_errors().square().mean()) > 2
    assert float(wide._standardised_errors().square().mean()) == pytest.approx(1)
    assert_close(wide.predictive(points).mean, sure.predictive(points).mean, rtol=1e-6, atol=1e-8)
    humble = Process.fit(Scales(2, (0.7, 1.5), 0.4, 1.2, 1000.0), data)
    assert humble.widened().scales == humble.scales


def test_a_later_prior_must_be_better_by_more_than_one_standard_error():
    data = rows(40)
    noisy = Scales(2, (0.7, 1.5), 0.4, 1.2, 1000.0)
    assert best_process([noisy, SCALES], data).scales.noise_variance < 1
    tagged = replace(SCALES, log_evidence=1.0)
    assert best_process([tagged, SCALES], data).scales.log_evidence == 1.0  # the first wins ties
