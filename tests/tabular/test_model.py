"""Models of tables: predictions and evaluations of rows and files, and what an update changes."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from degp.tabular import TableError, TableWarning, estimators, read_table
from degp.tabular.model import (
    estimator_for,
    evaluate_rows,
    plain_ensemble,
    predict_file,
    predict_rows,
    prepare,
    update_rows,
    validation_nll,
)
from degp.tabular.saving import Model, ModelError
from tests.tabular.cases import houses

QUICK = {"members": 3, "hidden_layers": (8,), "steps": 3, "random_state": 0}
TARGETS = {"numbers": "price", "classes": "garden"}


def fitted(frame, target):
    rows = prepare(frame, target)
    estimator = estimator_for(rows.target, QUICK).fit(rows.inputs, rows.targets)
    return Model(estimator, rows.target, {})


@pytest.fixture(scope="module")
def models():
    """A model of numbers and one of classes."""
    return {name: fitted(houses(), target) for name, target in TARGETS.items()}


@pytest.fixture
def table(tmp_path):
    """The path of a table in a folder of its own."""
    houses().to_csv(tmp_path / "houses.csv", index=False)
    return tmp_path / "houses.csv"


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_is_predicted_in_chunks_as_at_once(name, suffix, models, table):
    out = table.with_name(f"p{suffix}")
    rows = predict_file(models[name], table, out, chunk_rows=7, id_column="sold")
    written = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    whole = predict_rows(models[name], read_table(table))
    assert rows == len(written) == len(whole)
    assert written["sold"].tolist() == houses()["sold"].tolist()
    for column in whole:
        if column != "prediction":
            np.testing.assert_allclose(written[column], whole[column], rtol=1e-6, atol=1e-9)


def test_a_bad_cell_in_a_late_chunk_leaves_no_file(models, table):
    frame = houses().astype({"age": object})
    frame.loc[59, "age"] = "old"
    frame.to_csv(table, index=False)
    with pytest.raises(TableError, match="row 59"):
        predict_file(models["numbers"], table, table.with_name("p.csv"), chunk_rows=10)
    assert [path.name for path in table.parent.iterdir()] == ["houses.csv"]


def test_unusual_cells_are_counted_over_the_whole_file(models, table):
    frame = houses().assign(pool=1)
    frame.loc[::4, "city"] = ["Rome", "Bonn", "Rome"] * 5
    frame.loc[5:40, "størrelse"] = np.nan
    frame.to_csv(table, index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predict_file(models["numbers"], table, table.with_name("p.csv"), chunk_rows=7)
    messages = sorted(str(warning.message) for warning in caught if issubclass(warning.category, TableWarning))
    assert messages == [
        "column 'city' has 15 cells in categories that training has not seen, such as 'Rome'; they count as none of "
        "the 3 known ones",
        "column 'størrelse' has 36 missing cells, but had none in training; they are filled in, and predictions for "
        "these rows are less reliable",
        "the table has columns that training did not have: 'pool'; they are ignored",
    ]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("task", ["predict", "evaluate"])
def test_members_are_evaluated_once_per_call(name, task, models, monkeypatch):
    calls = []
    predict = estimators.predict
    monkeypatch.setattr(estimators, "predict", lambda *a, **k: calls.append(1) or predict(*a, **k))
    if task == "predict":
        predict_rows(models[name], houses())
    else:
        evaluate_rows(models[name], houses(), resamples=3, generator=torch.Generator())
    assert len(calls) == 1


def test_predictions_are_those_of_the_estimator(models):
    frame = houses()
    numbers, classes = (models[name].estimator for name in TARGETS)
    predicted, spread = predict_rows(models["numbers"], frame, level=0.5), numbers.uncertainty(frame)
    np.testing.assert_allclose(predicted["mean"], numbers.predict(frame))
    np.testing.assert_allclose(predicted["epistemic_std"] ** 2, spread.epistemic)
    np.testing.assert_allclose(predicted["total_std"] ** 2, spread.total)
    np.testing.assert_allclose(predicted[["lower", "upper"]], numbers.predict_interval(frame, 0.5))
    predicted, spread = predict_rows(models["classes"], frame), classes.uncertainty(frame)
    np.testing.assert_allclose(predicted[["probability_no", "probability_yes"]], classes.predict_proba(frame))
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


def test_a_plain_ensemble_has_the_settings_of_the_model(models):
    plain = plain_ensemble(models["numbers"], houses()).estimator
    assert plain.get_params() == models["numbers"].estimator.get_params() | {"method": "de"}


def test_a_model_without_its_target_predicts_and_cannot_be_evaluated(models):
    bare = Model(models["classes"].estimator, None, {})
    pd.testing.assert_frame_equal(predict_rows(bare, houses()), predict_rows(models["classes"], houses()))
    with pytest.raises(ModelError, match="the name of the target's column must be known"):
        evaluate_rows(bare, houses(), generator=torch.Generator())
