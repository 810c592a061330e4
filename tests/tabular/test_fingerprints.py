"""Rows that a model was trained on are recognised, and others are not."""

import numpy as np
import pytest

from degp.sklearn import DEGPRegressor
from degp.tabular.evaluating import evaluate_rows
from degp.tabular.fingerprints import fingerprints
from degp.tabular.model import encode_labelled, update_rows
from degp.tabular.saving import load_model, save_model
from tests.fixtures import seeded
from tests.tabular.cases import QUICK, fitted, houses
from tests.tabular.conftest import TARGETS
from tests.tabular.test_evaluating import lines
from tests.tabular.test_saving import FILES


def test_rows_have_the_same_fingerprint_where_all_their_values_are_equal():
    inputs, targets = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50)
    known = fingerprints(inputs, targets)
    assert len(set(known)) == 50
    assert (fingerprints(inputs[::-1], targets[::-1].astype(float)[:, None]) == known[::-1]).all()
    changed = inputs.copy()
    changed[7, 2] += 1e-12
    assert (fingerprints(changed, targets) != known).nonzero()[0].tolist() == [7]
    assert (fingerprints(inputs, targets + 1) != known).all()
    assert (fingerprints(np.array([[-0.0]]), targets[:1]) == fingerprints(np.array([[0.0]]), targets[:1])).all()


def seen(model, frame, name):
    """The reasons of the verdict that speak of rows of training."""
    (evaluation,) = evaluate_rows(model, frame, resamples=3, generator=seeded()).values()
    return [reason["text"] for reason in evaluation["verdict"]["reasons"] if reason["rule"] == "seen"]


@pytest.mark.parametrize("name", TARGETS)
def test_the_verdict_says_that_rows_were_trained_on(name, models, tmp_path):
    model = load_model(save_model(tmp_path / "model", models[name].estimator, target=models[name].target))
    (text,) = seen(model, houses(), name)
    assert text.startswith("60 of 60 test rows equal rows of training")
    others = houses().assign(age=range(60))
    assert seen(model, others, name) == []


def test_a_few_equal_rows_are_no_reason_for_caution():
    train, test = lines(100), lines(97)
    model = fitted(train, "y")
    assert seen(model, test, "y") == []
    test.iloc[:3] = train.iloc[:3]
    assert seen(model, test, "y") == []
    test.iloc[:9] = train.iloc[:9]
    assert len(seen(model, test, "y")) == 1


def test_rows_of_weight_zero_were_not_trained_on_and_those_of_an_update_were():
    x = np.random.default_rng(0).normal(size=(60, 2))
    weights = np.repeat([1.0, 0.0], 30)
    model = DEGPRegressor(**QUICK).fit(x, x[:, 0], sample_weight=weights)
    assert model._is_known(x, x[:, 0]).tolist() == (weights > 0).tolist()
    model.update(x[30:40], x[30:40, 0])
    assert model._is_known(x, x[:, 0]).sum() == 40


def test_models_of_tables_know_the_rows_of_an_update(tmp_path):
    frame = lines(80)
    model = fitted(frame[:60], "y")
    update_rows(model, frame[60:])
    _, inputs, targets = encode_labelled(model, frame)
    assert model.estimator._is_known(inputs.values, targets).all()


def test_models_of_earlier_versions_know_no_rows():
    assert load_model(FILES / "schema-3" / "numbers").estimator.fingerprints_.size == 0
