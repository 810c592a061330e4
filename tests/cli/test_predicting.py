"""`degp predict`: the file has the estimator's predictions, and unusual cells are reported."""

import numpy as np
import pandas as pd
import pytest

from degp.tabular import read_table
from degp.tabular.saving import load_model
from tests.cli.commands import assert_rejected, houses, names, notes, run


def test_predictions_of_numbers_are_those_of_the_estimator(place, tmp_path):
    run("predict", place / "numbers", place / "test.csv", "--out", tmp_path / "p.csv", "--level", "0.5", "--id", "id")
    written, model = pd.read_csv(tmp_path / "p.csv", dtype={"id": str}), load_model(place / "numbers")
    inputs = read_table(place / "test.csv")
    mean, std = model.estimator.predict(inputs, return_std=True)
    np.testing.assert_allclose(written[["mean", "total_std"]], np.stack([mean, std], 1), rtol=1e-7)
    np.testing.assert_allclose(written[["lower", "upper"]], model.estimator.predict_interval(inputs, 0.5), rtol=1e-7)
    assert (written["epistemic_std"] <= written["total_std"]).all()
    assert written["id"][:2].tolist() == ["0000", "0001"]


def test_predictions_of_classes_are_those_of_the_estimator(place, tmp_path):
    run("predict", place / "classes", place / "test.csv", "--out", tmp_path / "p.csv")
    written, model = pd.read_csv(tmp_path / "p.csv"), load_model(place / "classes")
    inputs = read_table(place / "test.csv")
    probabilities = written[["probability_False", "probability_True"]].to_numpy()
    np.testing.assert_allclose(probabilities, model.estimator.predict_proba(inputs), rtol=1e-7)
    assert (written["prediction"] == (probabilities[:, 1] > 0.5)).all()
    assert (written["epistemic"] <= written["total"]).all()


def test_conformal_intervals_have_the_same_mean_and_other_ends(place, tmp_path):
    plain, conformal = tmp_path / "p.csv", tmp_path / "c.csv"
    run("predict", place / "numbers", place / "test.csv", "--out", plain, "--level", "0.5")
    run("predict", place / "numbers", place / "test.csv", "--out", conformal, "--level", "0.5", "--conformal")
    assert (pd.read_csv(plain)["mean"] == pd.read_csv(conformal)["mean"]).all()
    assert (pd.read_csv(plain)["lower"] != pd.read_csv(conformal)["lower"]).all()
    done = run("predict", place / "numbers", place / "test.csv", "--out", conformal, "--level", "0.99", "--conformal")
    assert done.exit_code == 0
    assert "note: 60 rows are too few" in done.stderr


def test_new_rows_must_have_the_columns_of_training(place, tmp_path):
    houses(9, 3).drop(columns="size").to_csv(tmp_path / "new.csv", index=False)
    assert_rejected(run("predict", place / "numbers", tmp_path / "new.csv", "--out", tmp_path / "p.csv"), "'size'")
    houses(9, 3).assign(size="large").to_csv(tmp_path / "new.csv", index=False)
    done = run("predict", place / "numbers", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert_rejected(done, "'size'", "'large'")
    assert names(tmp_path) == ["new.csv"]


def test_unusual_cells_are_noted_once(place, tmp_path):
    houses(9, 3).assign(city="Rome", pool=1, size=lambda f: f["size"].where(f.index > 2)).to_csv(tmp_path / "new.csv")
    done = run("predict", place / "numbers", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert done.exit_code == 0
    for phrase in ("'city' has 9 cells in categories", "'size' has 3 missing cells", "'pool'"):
        assert sum(phrase in note for note in notes(done)) == 1


@pytest.mark.parametrize("model", ["numbers", "classes"])
def test_one_row_can_be_predicted_and_evaluated(model, place, tmp_path):
    houses(1, 3).to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", place / model, tmp_path / "new.csv", "--out", tmp_path / "p.csv").exit_code == 0
    done = run("evaluate", place / model, tmp_path / "new.csv", "--resamples", "5")
    assert done.exit_code == 0, done.output
    assert "Cannot tell" in done.stdout
