"""Calibration finds the noise or temperature that validation data support, and no more."""

import copy
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from degp import Bernoulli, Categorical, Gaussian, methods
from degp.calibration import (
    DOUBT,
    calibrate,
    calibrate_cautiously,
    calibrated_nll,
    first_within_one_error,
    golden_section,
    weighted_mean,
)
from degp.priors import NNGP


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_calibration_finds_the_noise_variance_of_the_data():
    outputs = normal(4, 30, 1)
    truth = outputs.mean(0) + math.sqrt(0.3) * normal(30, 1, seed=2) + outputs.std(0) * normal(30, 1, seed=3)
    method = methods.de(Gaussian(1.0))
    factor = calibrate(method, outputs, truth)
    assert method.likelihood.variance.item() == pytest.approx(factor)
    nll = [-methods.de(Gaussian(factor * c)).predictive(outputs).log_prob(truth).mean() for c in (0.9, 1.0, 1.1)]
    assert nll[1] <= min(nll)


@given(log_factor=st.floats(-9, 9), epistemic=st.floats(0.01, 2.0), seed=st.integers(0, 99))
def test_the_score_of_an_epoch_is_that_of_the_calibrated_model(log_factor, epistemic, seed):
    """The NLL does not depend on how far off the noise is."""
    generator = torch.Generator().manual_seed(seed)
    outputs = epistemic * torch.randn(4, 40, 1, generator=generator, dtype=torch.float64)
    truth = torch.randn(40, 1, generator=generator, dtype=torch.float64) * 0.5
    method = methods.degp(Gaussian(0.3 * math.exp(log_factor)), NNGP(1))
    judged = calibrated_nll(method.predictive(outputs), truth).mean()
    calibrate(method, outputs, truth)
    delivered = -method.predictive(outputs).log_prob(truth).mean()
    assert delivered - 1e-6 <= judged <= delivered + 0.02


@given(rows=st.integers(2, 60), log_noise=st.floats(-3, 3), seed=st.integers(0, 999))
def test_noise_is_lowered_to_its_upper_confidence_bound_and_raised_at_once(rows, log_noise, seed):
    random = torch.Generator().manual_seed(seed)
    outputs = 0.3 * torch.randn(3, rows, 1, generator=random, dtype=torch.float64)
    targets = torch.randn(rows, 1, generator=random, dtype=torch.float64)
    method = methods.de(Gaussian(math.exp(log_noise)))

    def outcome(calibration) -> tuple[float, float]:
        own = copy.deepcopy(method)
        factor = calibration(own, outputs, targets)
        return factor, float(-own.predictive(outputs).log_prob(targets).mean())

    (best, least), (cautious, nll) = (outcome(calibration) for calibration in (calibrate, calibrate_cautiously))
    if best >= 1:
        assert cautious == best
    else:
        assert best <= cautious <= 1
        assert rows * (nll - least) <= DOUBT**2 / 2 + 1e-6
        assert cautious == 1 or rows * (nll - least) == pytest.approx(DOUBT**2 / 2, rel=1e-3)


def test_a_temperature_never_claims_more_than_the_validation_points_can_show():
    """All 40 points correct: the best temperature leaves each an error probability of about one in 40, not none."""
    labels = torch.arange(40) % 3
    outputs = 5.0 * torch.nn.functional.one_hot(labels, 3).double().expand(4, -1, -1)
    method = methods.de(Categorical(1.0))
    calibrate(method, outputs, labels)
    wrong = 1 - method.predictive(outputs).probabilities.max(-1).values.mean()
    assert 0.5 / 41 < float(wrong) < 1 / 41


def test_a_simpler_variant_stands_within_one_standard_error():
    noise = normal(3, 100)
    noise = 0.1 * (noise - noise.mean(1, keepdim=True))
    cases = {  # 0.05 is within the standard deviation of a difference, and more than three of its standard errors
        (0.001, 0.0, 0.001): 0,
        (0.5, 0.001, 0.0): 1,
        (0.5, 0.5, 0.0): 2,
        (0.05, 0.05, 0.0): 2,
        (0.0, 0.0, 0.0): 0,
    }
    for means, taken in cases.items():
        assert first_within_one_error(noise + torch.tensor(means, dtype=torch.float64)[:, None]) == taken


def test_one_validation_point_is_enough_to_choose():
    assert first_within_one_error(torch.tensor([[1.0], [0.5]], dtype=torch.float64)) == 1


@given(minimum=st.floats(-2.9, 2.9, allow_subnormal=False))
def test_golden_section_finds_the_minimum(minimum):
    assert golden_section(lambda t: (t - minimum) ** 2, -3.0, 3.0) == pytest.approx(minimum, abs=1e-5)


@pytest.mark.parametrize("calibration", [calibrate, calibrate_cautiously])
@pytest.mark.parametrize("classes", [False, True])
def test_a_weight_counts_how_often_its_point_occurs(calibration, classes):
    outputs, counts = normal(4, 9, 3), torch.tensor([0, 1, 2, 3, 1, 4, 0, 1, 5])
    targets = torch.arange(9) % 3 if classes else 0.2 * normal(9, 3, seed=1)
    rows = torch.arange(9).repeat_interleave(counts)
    likelihood = Categorical(1.0) if classes else Gaussian(1.0)
    weighted, repeated, plain, ones = (methods.de(copy.deepcopy(likelihood)) for _ in range(4))
    factor = calibration(weighted, outputs, targets, counts.double())
    assert factor == pytest.approx(calibration(repeated, outputs[:, rows], targets[rows]), rel=1e-4)
    assert calibration(plain, outputs, targets) == calibration(ones, outputs, targets, torch.ones(9)) != factor


def test_the_weighted_score_of_an_epoch_is_that_of_repeated_points():
    outputs, targets, counts = normal(4, 9, 1), normal(9, 1, seed=1), torch.tensor([0, 1, 2, 3, 1, 4, 0, 1, 5])
    method, rows = methods.de(Gaussian(0.3)), torch.arange(9).repeat_interleave(counts)
    weighted = calibrated_nll(method.predictive(outputs), targets, counts.double())
    repeated = calibrated_nll(method.predictive(outputs[:, rows]), targets[rows])
    assert weighted_mean(weighted, counts.double()).item() == pytest.approx(repeated.mean().item())
    assert torch.equal(weighted_mean(weighted), weighted_mean(weighted, torch.ones(9)))


def test_calibration_of_binary_targets_finds_their_temperature():
    outputs = 4 * normal(1, 4000, 2)
    targets = torch.bernoulli((outputs[0] / 3).sigmoid(), generator=torch.Generator().manual_seed(1))
    method = methods.de(Bernoulli())
    assert calibrate(method, outputs, targets) == pytest.approx(3.0, rel=0.05)
    again = methods.de(Bernoulli())
    repeated = torch.cat([outputs, outputs[:, :1000]], 1), torch.cat([targets, targets[:1000]])
    weights = torch.cat([torch.full((1000,), 2.0), torch.ones(3000)])
    assert calibrate(again, *repeated) == pytest.approx(calibrate(methods.de(Bernoulli()), outputs, targets, weights))


UNUSABLE = {
    "needs at least one point, and a target of each, but there are outputs at 0 points and 0 targets": (0, (0, 1)),
    "there are outputs at 4 points and 3 targets; pass the same points in both": (4, (3, 1)),
    "are torch.float32 of shape (4,); a single target is targets[:, None]": (4, (4,)),
}


@pytest.mark.parametrize("calibration", [calibrate, calibrate_cautiously])
def test_points_that_cannot_calibrate_are_refused(calibration):
    """An average over no points, or over NaN, would be the largest noise."""
    for message, (points, shape) in UNUSABLE.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            calibration(methods.de(Gaussian(0.1)), torch.zeros(3, points, 1), torch.zeros(shape))
    outputs, targets = torch.zeros(3, 4, 1), torch.zeros(4, 1)
    with pytest.raises(ValueError, match="targets must be finite, but 4 of 4 rows"):
        calibration(methods.de(Gaussian(0.1)), outputs, targets / 0)
    with pytest.raises(ValueError, match="some weight must be positive"):
        calibration(methods.de(Gaussian(0.1)), outputs, targets, torch.zeros(4))
