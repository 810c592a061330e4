"""Fitted temperatures are recovered, and never worse where they were fitted."""

import pytest
import torch
from torch.testing import assert_close

from degp import methods
from degp.calibration import smoothed_nll
from degp.likelihoods import Categorical
from degp.methods import with_likelihood
from degp.vision import PooledTemperature, TemperatureScaled, TwoTemperatures, class_scores, fit_temperatures
from tests.vision.cases import METHODS, SETS, example, predictive


def mixture(temperature=1.0):
    return TemperatureScaled(methods.de(Categorical(temperature)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("temperature", [0.02, 1.0, 40.0])
def test_a_fitted_temperature_is_never_worse_where_it_was_fitted(method, temperature):
    outputs, labels = example(method).outputs(SETS.validation.inputs), SETS.validation.targets
    plain = TemperatureScaled(with_likelihood(example(method).method, Categorical(temperature)))
    fitted = plain.fitted(outputs, labels)
    scores = [smoothed_nll(scaled(outputs).probabilities, labels) for scaled in (fitted, plain)]
    assert scores[0] <= scores[1]
    assert plain.temperature == pytest.approx(temperature)  # the trained one is unchanged


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_fitted_temperature_undoes_the_scale_of_the_outputs(scale):
    outputs, labels = example("de").outputs(SETS.validation.inputs), SETS.validation.targets
    expected = mixture().fitted(outputs, labels)(outputs).probabilities
    found = mixture().fitted(scale * outputs, labels)(scale * outputs).probabilities
    assert_close(found, expected, rtol=0, atol=1e-3)


def test_a_pooled_temperature_is_recovered_and_keeps_the_order_of_the_classes():
    p = predictive(5000, 0).probabilities
    labels = torch.multinomial(p, 1, generator=torch.Generator().manual_seed(1)).squeeze(1)
    for temperature in (0.5, 1.0, 3.0):
        wrong = PooledTemperature(temperature)(p)
        fitted = PooledTemperature.fitted(wrong, labels)
        assert fitted.temperature == pytest.approx(1 / temperature, rel=0.1)
        assert_close(fitted(wrong), p, atol=0.03, rtol=0)
        assert torch.equal(fitted(wrong).argmax(-1), p.argmax(-1))
    assert_close(PooledTemperature()(p), p)


def test_a_pooled_temperature_stays_uncertain_where_all_labels_are_right():
    p = torch.softmax(30 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), -1)
    assert PooledTemperature.fitted(p, p.argmax(-1)).temperature > 1  # 200 points do not prove odds of e³⁰


@pytest.mark.parametrize("method", METHODS)
def test_two_temperatures_are_never_worse_than_one_where_they_were_fitted(method):
    outputs, labels = example(method).outputs(SETS.validation.inputs), SETS.validation.targets
    plain = TemperatureScaled(example(method).method)
    one = plain.fitted(outputs, labels)(outputs).probabilities
    two = TwoTemperatures.fitted(plain, outputs, labels)
    assert smoothed_nll(two(outputs), labels) <= smoothed_nll(one, labels)


@pytest.mark.parametrize("spread", [0.0, 0.01])
def test_members_that_agree_have_one_temperature(spread):
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(1, 500, 3, generator=generator, dtype=torch.float64)
    outputs = shared + spread * torch.randn(4, 500, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(shared[0] / 0.3, -1), 1, generator=generator).squeeze(1)
    two = TwoTemperatures.fitted(mixture(), outputs, labels)
    assert two.average.temperature == 1  # only τT is identified
    assert two.functions.temperature == pytest.approx(0.3, rel=0.2)


@pytest.mark.slow
def test_two_temperatures_are_recovered():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(8, 20_000, 3, generator=generator, dtype=torch.float64) + torch.randn(
        1, 20_000, 3, generator=generator, dtype=torch.float64
    )
    p = TwoTemperatures(mixture(0.25), PooledTemperature(0.5))(outputs)
    labels = torch.multinomial(p, 1, generator=generator).squeeze(1)
    for first in (0.1, 1.0):
        found = TwoTemperatures.fitted(mixture(first), outputs, labels)
        assert found.functions.temperature == pytest.approx(0.25, rel=0.2)
        assert found.average.temperature == pytest.approx(0.5, rel=0.1)
        assert_close(found(outputs), p, atol=0.05, rtol=0)


def test_scores_are_those_of_the_three_predictive_distributions():
    calibrated, outputs = fit_temperatures(example(), SETS.validation), example().outputs(SETS.test.inputs)
    scores, labels = calibrated.scores(outputs, SETS.test.targets), SETS.test.targets
    plain = class_scores(TemperatureScaled(example().method)(outputs).probabilities, labels)
    one = class_scores(calibrated.one_temperature(outputs).probabilities, labels)
    two = class_scores(calibrated.two_temperatures(outputs), labels)
    assert scores == {
        **one,
        **{"nll_unfitted": plain["nll"], "ece_unfitted": plain["ece"]},
        **{"nll_calibrated": two["nll"], "ece_calibrated": two["ece"]},
    }
