"""Models of tables: predictions of rows, what an update changes, and how new tables are read."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from degp.tabular import TableError
from degp.tabular.model import column_relevance, encode_rows, predict_rows, read_rows, update_rows, validation_nll
from degp.tabular.saving import Model, ModelError
from tests.tabular.cases import fitted, houses
from tests.tabular.conftest import TARGETS


def test_predictions_are_those_of_the_estimator(models):
    frame = houses()
    numbers, classes = (models[name].estimator for name in TARGETS)
    inputs = encode_rows(models["numbers"], frame)
    predicted, spread = predict_rows(models["numbers"], frame, level=0.5), numbers.uncertainty(inputs)
    np.testing.assert_allclose(predicted["mean"], numbers.predict(inputs))
    np.testing.assert_allclose(predicted["epistemic_std"] ** 2, spread.epistemic)
    np.testing.assert_allclose(predicted["total_std"] ** 2, spread.total)
    np.testing.assert_allclose(predicted[["lower", "upper"]], numbers.predict_interval(inputs, 0.5))
    inputs = encode_rows(models["classes"], frame)
    predicted, spread = predict_rows(models["classes"], frame), classes.uncertainty(inputs)
    np.testing.assert_allclose(predicted[["probability_no", "probability_yes"]], classes.predict_proba(inputs))
    np.testing.assert_allclose(predicted[["epistemic", "total"]], np.stack([spread.epistemic, spread.total], 1))


def test_validation_nll_is_in_the_units_of_the_target(models):
    scaled = fitted(houses().assign(price=lambda frame: 1000 * frame["price"]), "price")
    difference = validation_nll(scaled.estimator) - validation_nll(models["numbers"].estimator)
    np.testing.assert_allclose(difference, np.log(1000), atol=1e-3)


def test_an_update_reports_rows_and_reduces_the_epistemic_std():
    model = fitted(houses(), "price")
    summary = update_rows(model, houses()[:30])
    assert summary.rows == 30 and summary.shift > 0
    assert summary.std[0] == 1 > summary.std[1]
    assert summary.epistemic_std[0] > summary.epistemic_std[1]


def test_a_model_without_its_target_predicts_and_cannot_be_updated(models):
    bare = Model(models["numbers"].estimator, None, {})
    pd.testing.assert_frame_equal(predict_rows(bare, houses()), predict_rows(models["numbers"], houses()))
    with pytest.raises(ModelError, match="the name of the target's column must be known"):
        update_rows(bare, houses())


def test_predictions_of_several_targets_are_named_after_them():
    frame = houses().assign(rent=lambda frame: frame["price"] + frame["størrelse"] / 50)
    model = fitted(frame, ["price", "rent"])
    predicted, inputs = predict_rows(model, frame, level=0.5), encode_rows(model, frame)
    mean, std = model.estimator.predict(inputs, return_std=True)
    interval = model.estimator.predict_interval(inputs, 0.5)
    for place, name in enumerate(("price", "rent")):
        np.testing.assert_allclose(predicted[f"{name}_mean"], mean[:, place])
        np.testing.assert_allclose(predicted[f"{name}_total_std"], std[:, place])
        np.testing.assert_allclose(predicted[[f"{name}_lower", f"{name}_upper"]], interval[:, place])
    assert len(predicted.columns) == 10


def test_an_update_of_several_targets_does_not_depend_on_their_units():
    frame = houses().assign(rent=lambda frame: frame["price"] + frame["størrelse"] / 50)
    summaries = []
    for unit in (1.0, 1000.0):
        scaled = frame.assign(rent=unit * frame["rent"])
        summaries.append(update_rows(fitted(scaled, ["price", "rent"]), scaled[:30]))
    np.testing.assert_allclose(summaries[0].rmse, summaries[1].rmse, rtol=1e-3)
    np.testing.assert_allclose(summaries[0].epistemic_std, summaries[1].epistemic_std, rtol=1e-3)


def test_the_relevance_of_a_column_is_its_share_of_the_squares(models):
    count = len(models["numbers"].preprocessing.features)
    model = with_relevance(models["numbers"], np.arange(1.0, count + 1))
    shares, relevance = column_relevance(model), model.estimator.feature_relevance_
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert shares["city"] / shares["age"] == pytest.approx((relevance["city"] / relevance["age"]) ** 2)


def test_one_relevance_for_all_features_ranks_no_columns(models):
    count = len(models["numbers"].preprocessing.features)
    assert column_relevance(with_relevance(models["numbers"], np.full(count, 0.3))) is None


def with_relevance(model, relevance):
    """The model, with another relevance of its features."""
    estimator = copy.copy(model.estimator)
    estimator.scales_ = replace(estimator.scales_, relevance=tuple(relevance.tolist()))
    return replace(model, estimator=estimator)


def test_a_model_without_a_header_reads_tables_with_and_without_the_target(tmp_path):
    frame = houses()[["price", "størrelse", "age"]]
    numbered = frame.set_axis(["1", "2", "3"], axis=1)
    model = fitted(numbered, "1", header=False)
    expected = predict_rows(model, numbered)
    for name, part in (("whole", frame), ("inputs", frame[["størrelse", "age"]])):
        part.to_csv(tmp_path / f"{name}.csv", index=False, header=False)
        pd.testing.assert_frame_equal(predict_rows(model, read_rows(model, tmp_path / f"{name}.csv")), expected)
    frame[["age"]].to_csv(tmp_path / "narrow.csv", index=False, header=False)
    with pytest.raises(TableError, match="its 3 columns in the same order, or all but the target, but it has 1"):
        read_rows(model, tmp_path / "narrow.csv")


def test_a_column_is_not_both_predicted_and_dropped():
    with pytest.raises(TableError, match="either predicted or dropped, but 'price' is to be both"):
        fitted(houses(), "price", drop=["price"])
