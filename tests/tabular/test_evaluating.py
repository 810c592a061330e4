"""Models of tables on labelled rows, and the baselines beside them."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import RidgeCV

from degp.tabular import estimator
from degp.tabular.evaluating import (
    PENALTIES,
    evaluate_baseline,
    evaluate_rows,
    plain_ensemble,
    simple_baselines,
    training_findings,
)
from degp.tabular.model import encode_labelled, predict_rows
from tests.tabular.cases import QUICK, fitted, houses
from tests.tabular.conftest import TARGETS


def quickly():
    return {"resamples": 3, "generator": torch.Generator().manual_seed(0)}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("task", ["predict", "evaluate"])
def test_members_are_evaluated_once_per_call(name, task, models, monkeypatch):
    calls = []
    predict = estimator.predict
    monkeypatch.setattr(estimator, "predict", lambda *a, **k: calls.append(1) or predict(*a, **k))
    if task == "predict":
        predict_rows(models[name], houses())
    else:
        evaluate_rows(models[name], houses(), **quickly())
    assert len(calls) == 1


def test_a_plain_ensemble_has_the_settings_of_the_model(models):
    plain = plain_ensemble(models["numbers"], houses()).estimator
    assert plain.get_params() == models["numbers"].estimator.get_params() | {"method": "de"}


def lines(rows):
    """A linear function of two inputs, with noise of standard deviation 0.5."""
    random = np.random.default_rng(rows)
    frame = pd.DataFrame(random.normal(size=(rows, 2)), columns=["a", "b"])
    return frame.assign(y=3 * frame["a"] - 2 * frame["b"] + random.normal(0, 0.5, rows))


def test_baselines_of_numbers_have_the_error_of_cross_validation():
    train, test = lines(400), lines(300)
    model = fitted(train, "y")
    baselines = simple_baselines(model, train)
    assert list(baselines) == ["Gradient boosting", "Linear regression"]
    found = {name: evaluate_baseline(one, model, test, **quickly())["y"] for name, one in baselines.items()}
    linear = found["Linear regression"]["metrics"]
    _, inputs, targets = encode_labelled(model, train)
    _, new, truth = encode_labelled(model, test)
    errors = RidgeCV(PENALTIES).fit(inputs.values, targets).predict(new.values) - truth
    assert linear["rmse"]["value"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert linear["coverage_90"]["value"] == pytest.approx(0.9, abs=0.05)
    assert found["Gradient boosting"]["metrics"]["rmse"]["value"] > linear["rmse"]["value"]


def test_baselines_of_classes_give_absent_classes_no_probability():
    frame = houses(90).assign(kind=np.arange(90) % 3)
    model = fitted(frame, "kind", task="classification")
    for baseline in simple_baselines(model, frame[frame["kind"] != 1]).values():
        probabilities, _ = baseline(encode_labelled(model, frame)[1].values)
        assert (probabilities[:, 1] == 0).all()
        np.testing.assert_allclose(probabilities.sum(1), 1)


def test_each_of_several_targets_has_its_own_evaluation():
    frame = lines(120).assign(z=lambda frame: 100 * frame["a"])
    model = fitted(frame, ["y", "z"])
    evaluations, predicted = evaluate_rows(model, frame, **quickly()), predict_rows(model, frame)
    for name in ("y", "z"):
        rmse = np.sqrt(np.mean((predicted[f"{name}_mean"] - frame[name]) ** 2))
        assert evaluations[name]["metrics"]["rmse"]["value"] == pytest.approx(rmse)
    for baseline in simple_baselines(model, frame).values():
        assert evaluate_baseline(baseline, model, frame, **quickly()).keys() == {"y", "z"}


def test_a_training_that_was_cut_off_is_found():
    settings = QUICK | {"steps": 10**6, "max_seconds": 0.05}
    (finding,) = training_findings(fitted(houses(), "price", settings=settings))
    assert finding.grade == "caution" and " of 1000000: " in finding.text
    assert training_findings(fitted(houses(), "price")) == []
