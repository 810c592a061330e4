"""Weights of rows and classes: relative, absent where zero, and refused where they mean nothing."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight

from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.tabular.saving import load_model, save_model
from degp.tabular.weights import weighted_rows

SMALL = {"members": 3, "hidden_layers": (16,), "steps": 20, "random_state": 0}
LONGER = SMALL | {"steps": 300}


def rows(count=40, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((count, 2))
    return X, X[:, 0] + 0.1 * random.standard_normal(count), random.uniform(0.1, 3, count)


def same(one, other, X):
    return all(
        np.array_equal(a, b) for a, b in zip(*(m.predict(X, return_std=True) for m in (one, other)), strict=True)
    )


def test_equal_weights_are_no_weights():
    X, y, _ = rows()
    plain = DEGPRegressor(**SMALL).fit(X, y)
    assert same(plain, clone(plain).fit(X, y, sample_weight=np.full(40, 7.0)), X)


def test_weights_are_relative():
    X, y, w = rows()
    model = DEGPRegressor(**SMALL).fit(X, y, sample_weight=w)
    assert same(model, clone(model).fit(X, y, sample_weight=4 * w), X)  # a power of two, which rounds nothing
    assert not same(model, clone(model).fit(X, y), X)


@pytest.mark.parametrize("make", [DEGPRegressor, DEGPClassifier])
def test_a_row_of_weight_zero_is_absent(make):
    X, y, w = rows()
    labels = y if make is DEGPRegressor else np.where(y > 0, "up", "down")
    w[::4] = 0
    kept, model = w > 0, make(**SMALL)
    if make is DEGPClassifier:
        labels = np.where(kept, labels, "never seen")
    weighted = clone(model).fit(X, labels, sample_weight=w)
    removed = clone(model).fit(X[kept], labels[kept], sample_weight=w[kept])
    predict = "predict" if make is DEGPRegressor else "predict_proba"
    assert np.array_equal(getattr(weighted, predict)(X), getattr(removed, predict)(X))


def test_heavy_rows_win_where_rows_contradict_each_other():
    X = np.repeat(np.linspace(-1, 1, 60), 2)[:, None]
    y = np.tile([1.0, -1.0], 60) + np.repeat(np.sin(np.linspace(0, 9, 60)), 2) * 0.1
    w = np.tile([9.0, 1.0], 60)
    mean = DEGPRegressor(**LONGER).fit(X, y, sample_weight=w).predict(X).mean()
    assert mean == pytest.approx(0.8, abs=0.15)  # (9 − 1) / 10
    labels = DEGPClassifier(**LONGER).fit(X, y > 0, sample_weight=w).predict_proba(X)[:, 1].mean()
    assert labels == pytest.approx(0.9, abs=0.07)


def test_balanced_classes_are_equally_probable_where_inputs_say_nothing():
    random = np.random.default_rng(0)
    X, y = random.standard_normal((300, 1)), np.arange(300) % 10 == 0
    plain, balanced, by_hand = (
        DEGPClassifier(**LONGER, class_weight=weight).fit(X, y)
        for weight in (None, "balanced", {True: 5.0, False: 5 / 9})
    )
    assert plain.predict_proba(X)[:, 1].mean() == pytest.approx(0.1, abs=0.05)
    assert balanced.predict_proba(X)[:, 1].mean() == pytest.approx(0.5, abs=0.12)
    np.testing.assert_allclose(by_hand.predict_proba(X), balanced.predict_proba(X), rtol=1e-3)


def test_class_and_sample_weights_multiply():
    X, y, w = rows()
    labels = np.where(y > 0.5, "rare", "common")
    _, _, weights = weighted_rows(X, labels, w, "balanced")
    np.testing.assert_allclose(weights, w * compute_sample_weight("balanced", labels))
    w[labels == "rare"] *= np.arange((labels == "rare").sum()) % 2
    X, kept, weights = weighted_rows(X, labels, w, "balanced")  # rows of weight 0 do not count as members of a class
    np.testing.assert_allclose(weights, w[w > 0] * compute_sample_weight("balanced", kept))


def test_weights_come_from_lists_and_series_and_are_not_changed():
    X, y, w = rows()
    before = w.copy()
    for weights in (w, list(w), pd.Series(w, index=np.arange(40)[::-1])):
        np.testing.assert_allclose(weighted_rows(X, y, weights)[2], before)
    assert np.array_equal(w, before)
    assert weighted_rows(X, y, None)[2] is None


@pytest.mark.parametrize(
    "weights, message",
    [
        (-np.ones(40), r"weights must be finite and not negative, but 40 of 40 are not, the first is -1\.0 in row 0"),
        (np.append(np.ones(39), np.nan), r"but 1 of 40 are not, the first is nan in row 39"),
        (
            np.ones(39),
            r"sample_weight must have one number per row, \(40,\), but its shape is \(39,\); select the same",
        ),
        (np.ones((40, 1)), r"but its shape is \(40, 1\)"),
        (1.0, r"but its shape is \(\)"),
        (np.zeros(40), "some weight must be positive, but all 40 are zero"),
    ],
    ids=["negative", "NaN", "too few", "a column", "a number", "zeros"],
)
@pytest.mark.parametrize("make", [DEGPRegressor, DEGPClassifier])
def test_weights_that_mean_nothing_are_refused(make, weights, message):
    X, y, _ = rows()
    with pytest.raises(ValueError, match=message):
        make(**SMALL).fit(X, y > 0 if make is DEGPClassifier else y, sample_weight=weights)


def test_class_weights_that_mean_nothing_are_refused():
    X, y, _ = rows()
    with pytest.raises(ValueError, match="all targets are one class: True"):
        DEGPClassifier(**SMALL, class_weight={False: 0.0}).fit(X, y > 0)
    with pytest.raises(ValueError, match=r"'class_weight' .* a str among {'balanced'}"):
        DEGPClassifier(**SMALL, class_weight="even").fit(X, y > 0)


def test_the_classifier_has_every_parameter_of_the_regressor():
    assert DEGPClassifier().get_params() == DEGPRegressor().get_params()


def test_a_regressor_has_no_classes_to_weigh():
    X, y, _ = rows()
    with pytest.raises(ValueError, match="class_weight is for classifiers, but it is 'balanced'; pass sample_weight"):
        DEGPRegressor(**SMALL, class_weight="balanced").fit(X, y)


@pytest.mark.parametrize("weight", [None, "balanced", {1: 2.5, 0: 1.0}], ids=str)
def test_class_weights_are_saved(weight, tmp_path):
    X, y, _ = rows()
    model = DEGPClassifier(**SMALL, class_weight=weight).fit(X, (y > 0).astype(int))
    save_model(tmp_path / "model", model)
    assert load_model(tmp_path / "model").estimator.get_params()["class_weight"] == weight
