"""Predictions of known calibration get the right verdict, and each rule its grade."""

import re

import pytest
import torch

from degp.report import evaluate_regression
from degp.report.verdict import bias_rule, confidence_rule, coverage_rule, detection_rule, groups_rule, ranking_rule
from tests.report.cases import classification, grades, normal_case, regression, seeded


@pytest.mark.parametrize(
    "N, scale, status, headline",
    [
        (400, 1.0, "trust", "Trust them"),
        (400, 0.6, "overconfident", "Too narrow"),
        (400, 1.8, "underconfident", "Too wide"),
        (12, 1.0, "cannot_tell", "Cannot tell"),
        (1, 1.0, "cannot_tell", "Cannot tell"),
    ],
)
def test_verdict_on_intervals(N, scale, status, headline):
    verdict = regression(N, scale)["verdict"]
    assert verdict["status"] == status
    assert verdict["text"].startswith(headline)
    assert f"{N} test row" in verdict["text"]


@pytest.mark.parametrize(
    "N, sharpness, status, headline",
    [
        (400, 1.0, "trust", "Trust them"),
        (400, 2.5, "overconfident", "Overconfident"),
        (400, 0.4, "underconfident", "Underconfident"),
        (12, 1.0, "cannot_tell", "Cannot tell"),
        (1, 1.0, "cannot_tell", "Cannot tell"),
    ],
)
def test_verdict_on_probabilities(N, sharpness, status, headline):
    verdict = classification(N, sharpness)["verdict"]
    assert verdict["status"] == status
    assert verdict["text"].startswith(headline)


def test_calibrated_predictions_raise_no_caution():
    assert set(grades(regression()).values()) == {"trust", "good"}
    assert set(grades(classification()).values()) == {"trust", "good"}


def test_error_bars_that_rank_rows_wrongly_raise_a_caution():
    mean, epistemic, variance, targets = normal_case(400)
    backwards = variance.sort().values[variance.argsort(descending=True).argsort()]
    evaluation = evaluate_regression(mean, 0.3 * backwards, backwards, targets, resamples=60, generator=seeded())
    assert grades(evaluation)["ranking"] == "caution"
    assert grades(evaluation)["groups"] == "caution"


def test_error_bars_of_one_width_cannot_rank_the_rows():
    one = torch.ones(200, dtype=torch.float64)
    targets = torch.randn(200, generator=seeded(), dtype=torch.float64)
    evaluation = evaluate_regression(0 * one, 0 * one, one, targets, resamples=20, generator=seeded())
    assert grades(evaluation)["ranking"] == "unknown"
    assert evaluation["metrics"]["rank_correlation"]["value"] is None


def test_trust_is_qualified_if_another_rule_raises_a_caution():
    mean, epistemic, variance, targets = normal_case(400)
    evaluation = evaluate_regression(
        mean + 0.3 * variance.sqrt(), epistemic, variance, targets, resamples=60, generator=seeded()
    )
    assert grades(evaluation)["bias"] == "caution"
    assert evaluation["verdict"]["headline"] == "Trust them, with caution"


def test_calibrated_intervals_are_trusted_in_99_of_100_cases():
    held = torch.distributions.Binomial(400, torch.tensor(0.9)).sample((300,)).int().tolist()
    trusted = [coverage_rule(count, 400, 0.9, width_factor=1.0).grade == "trust" for count in held]
    assert sum(trusted) / len(trusted) > 0.96


def test_negligible_differences_are_tolerated_for_any_number_of_rows():
    assert coverage_rule(91_000, 100_000, 0.9, width_factor=0.97).grade == "trust"
    assert "negligible in practice" in coverage_rule(91_000, 100_000, 0.9, width_factor=0.97).text


def test_few_rows_suffice_to_detect_gross_undercoverage():
    assert coverage_rule(2, 20, 0.9, width_factor=5.0).grade == "overconfident"


def test_confident_and_correct_on_few_rows_is_inconclusive():
    assert confidence_rule(torch.full((12,), 0.999), correct=12).grade == "cannot_tell"
    assert confidence_rule(torch.full((200,), 0.999), correct=200).grade == "trust"


def test_rules_report_when_there_are_too_few_rows():
    assert bias_rule(0.4, 1.0, rows=8).grade == "unknown"
    assert ranking_rule(0.3, rows=10, expected=-0.5, ratio=2.0).grade == "unknown"
    assert detection_rule(float("nan"), 0.0, wrong=0, expected=0.6).grade == "unknown"
    assert groups_rule([0.9], [40]) is None


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_recommended_width_undoes_a_wrong_scale(level):
    """Half the true standard deviation needs twice the width, up to sampling variation."""
    text = regression(20_000, 0.5, level=level, resamples=2)["verdict"]["text"]
    factor = float(re.search(r"they need (\S+) × the width", text)[1])
    assert factor == pytest.approx(2, rel=0.1)
