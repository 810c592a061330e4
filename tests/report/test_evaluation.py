"""An evaluation is plain, reproducible data, and its arguments are validated."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

from degp.report import evaluate_classification, evaluate_regression
from degp.report.verdict import training_rule
from degp.transforms import Identity, Log
from tests.report.cases import NAMES, class_case, classification, normal_case, regression, seeded


@pytest.mark.parametrize("evaluate", [regression, classification])
def test_values_lie_in_their_intervals(evaluate):
    for metric in evaluate()["metrics"].values():
        assert metric["low"] <= metric["value"] <= metric["high"]


@pytest.mark.parametrize("evaluate", [regression, classification])
@pytest.mark.parametrize("N", [1, 5, 150])
def test_evaluation_can_be_written_as_json(evaluate, N):
    evaluation = evaluate(N)
    assert json.loads(json.dumps(evaluation, allow_nan=False)) == evaluation


@pytest.mark.parametrize("evaluate", [regression, classification])
def test_evaluation_depends_only_on_the_generator(evaluate):
    assert evaluate() == evaluate()
    assert evaluate() != evaluate(generator=seeded(7))


def test_arrays_and_lists_are_equivalent_to_tensors():
    case = normal_case(30)
    as_arrays = evaluate_regression(*(c.numpy() for c in case), resamples=5, generator=seeded())
    as_lists = evaluate_regression(*(c.tolist() for c in case), resamples=5, generator=seeded())
    assert as_arrays == as_lists == evaluate_regression(*case, resamples=5, generator=seeded())


def test_most_and_least_certain_rows_have_the_extreme_standard_deviations():
    std = normal_case(400)[2].sqrt()
    evaluation = regression()
    assert [row["row"] for row in evaluation["most_certain"]] == std.argsort()[:5].tolist()
    assert [row["row"] for row in evaluation["least_certain"]] == std.argsort(descending=True)[:5].tolist()


def test_rows_of_the_confusion_matrix_are_true_classes():
    p = torch.tensor([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    labels = torch.tensor([0, 1, 2])
    evaluation = evaluate_classification(p, torch.zeros(3), labels, NAMES, resamples=5, generator=seeded())
    assert evaluation["confusion"] == [[1, 0, 0], [1, 0, 0], [0, 0, 1]]


def test_a_true_class_of_probability_zero_has_no_finite_likelihood():
    p = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]])
    evaluation = evaluate_classification(
        p, torch.zeros(2), torch.tensor([1, 0]), NAMES, resamples=5, generator=seeded()
    )
    assert evaluation["metrics"]["nll"]["value"] is None
    json.dumps(evaluation, allow_nan=False)


def test_errors_name_the_argument():
    mean, epistemic, variance, targets = normal_case(10)
    with pytest.raises(ValueError, match="total_variance must be positive"):
        evaluate_regression(mean, epistemic, 0 * variance, targets, generator=seeded())
    with pytest.raises(ValueError, match="epistemic_variance must be non-negative"):
        evaluate_regression(mean, -epistemic, variance, targets, generator=seeded())
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        evaluate_regression(mean, epistemic, variance, targets, level=90.0, generator=seeded())
    with pytest.raises(ValueError, match="one name for each of the 3 columns"):
        evaluate_classification(*class_case(10)[:3], ["ash"], generator=seeded())


@pytest.mark.parametrize("evaluate", [regression, classification])
def test_every_sample_counts_as_progress(evaluate):
    ticks = []
    evaluate(40, resamples=7, tick=lambda: ticks.append(1))
    assert len(ticks) == 14


def test_a_finding_about_the_model_makes_the_verdict_cautious():
    cut = training_rule(40, 1000, 8.04)
    for evaluate in (regression, classification):
        assert evaluate()["verdict"]["headline"] == "Trust them"
        verdict = evaluate(findings=[cut])["verdict"]
        assert verdict["headline"] == "Trust them, with caution"
        assert "after 8.04 s, at step 40 of 1000" in verdict["reasons"][-1]["text"]


def test_drawn_predictions_are_inside_as_often_as_the_intervals_cover():
    evaluation = regression(150)
    drawn = evaluation["curves"]["predictions"]
    assert sum(drawn["inside"]) / 150 == pytest.approx(evaluation["metrics"]["coverage_90"]["value"])
    assert drawn["predicted"] == sorted(drawn["predicted"])
    assert len(regression(1000)["curves"]["predictions"]["actual"]) == 200


def positive_case(N):
    """The logs of targets around a wave."""
    mean, epistemic, variance, targets = normal_case(N)
    return 0.5 * mean, 0.25 * epistemic, 0.25 * variance, (0.5 * targets).exp()


def test_predictions_of_the_log_are_scored_in_the_units_of_the_target():
    location, epistemic, spread, targets = positive_case(400)
    evaluation = evaluate_regression(
        location, epistemic, spread, targets, transform=Log(), resamples=5, generator=seeded()
    )
    law = stats.lognorm(s=spread.sqrt().numpy(), scale=location.exp().numpy())
    low, high = law.interval(0.9)
    y = targets.numpy()
    expected = {
        "nll": -law.logpdf(y).mean(),
        "rmse": np.sqrt(np.mean((law.mean() - y) ** 2)),
        "coverage_90": np.mean((low <= y) & (y <= high)),
        "interval_width": np.mean(high - low),
    }
    for name, value in expected.items():
        assert evaluation["metrics"][name]["value"] == pytest.approx(value, rel=1e-6), name
    row = evaluation["most_certain"][0]
    assert (row["low"], row["high"]) == pytest.approx((low[row["row"]], high[row["row"]]))


def test_calibration_is_the_same_in_both_units():
    location, epistemic, spread, targets = positive_case(200)
    log, own = (
        evaluate_regression(location, epistemic, spread, y, transform=transform, resamples=5, generator=seeded())
        for y, transform in ((targets, Log()), (targets.log(), Identity()))
    )
    assert log["curves"]["coverage"] == own["curves"]["coverage"] and log["curves"]["pit"] == own["curves"]["pit"]
    assert log["metrics"]["calibration_error"] == own["metrics"]["calibration_error"]


def test_a_target_that_has_no_log_is_impossible_and_below_every_interval():
    location, epistemic, spread, targets = positive_case(50)
    targets[3] = 0.0
    columns = (location, epistemic, spread, targets)
    evaluation = evaluate_regression(*columns, transform=Log(), resamples=5, generator=seeded())
    assert evaluation["metrics"]["nll"]["value"] is None
    assert 0 < evaluation["metrics"]["coverage_90"]["value"] < 1
    assert evaluation["metrics"]["crps"]["value"] > 0
    assert json.loads(json.dumps(evaluation, allow_nan=False)) == evaluation
