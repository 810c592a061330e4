"""Rows with missing cells have the noise that the missing value causes, in training and in prediction."""

import numpy as np
import pandas as pd
import pytest
import torch

from degp.export import export_onnx, max_difference
from degp.gaussian import LowRankGaussian
from degp.predictive import RegressionPredictive
from degp.sklearn import DEGPRegressor
from degp.tabular.missing import MissingNoise
from degp.transforms import Identity
from degp.typing import Batch
from tests.fixtures import normal
from tests.tabular.cases import QUICK

STD, SLOPE = 0.2, 2.0
SETTINGS = QUICK | {"steps": 200}


def table(rows, seed, *, slope=SLOPE, share=0.1):
    """y = a + slope × b and noise; b, of variance 1, is missing in a share of the rows."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, rows))
    y = a + slope * b + STD * random.normal(size=rows)
    return pd.DataFrame({"a": a, "b": np.where(random.uniform(size=rows) < share, np.nan, b)}), y


@pytest.fixture(scope="module")
def model():
    return DEGPRegressor(**SETTINGS).fit(*table(300, 0))


def test_the_noise_of_a_missing_value_is_its_variance_given_the_others(model):
    (factor,) = model.missing_noise_.factors
    assert factor == pytest.approx(1 + (SLOPE / STD) ** 2, rel=0.7)
    X, y = table(2000, 1)
    missing = X["b"].isna().to_numpy()
    mean, std = model.predict(X, return_std=True)
    inside = np.abs(y - mean) < 1.645 * std
    assert inside[missing].mean() == pytest.approx(0.9, abs=0.08) and inside[~missing].mean() > 0.83
    assert np.sqrt(np.mean((y - mean)[missing] ** 2)) < 1.15 * np.hypot(SLOPE, STD)  # that of E[y | a]


def test_a_harmless_missing_value_changes_no_noise():
    assert DEGPRegressor(**QUICK).fit(*table(200, 0, slope=0.0)).missing_noise_ == MissingNoise()
    assert DEGPRegressor(**QUICK).fit(*table(200, 0, share=0.0)).missing_noise_ == MissingNoise()


def test_only_cells_that_hide_much_have_a_factor():
    X, y = table(300, 0)
    X["c"] = np.where(np.arange(300) % 10 == 3, np.nan, X["a"] - y)
    X["c"] = X["c"].sample(frac=1, random_state=0).to_numpy()
    model = DEGPRegressor(**QUICK).fit(X, y)
    assert [model.preprocessing_.features[place] for place in model.missing_noise_.places] == ["b is missing"]


def test_input_dependent_noise_needs_neither_factors_nor_the_log():
    X, y = table(100, 0)
    model = DEGPRegressor(**QUICK, noise="input-dependent").fit(X, np.exp(y))
    assert model.missing_noise_ == MissingNoise() and model.target_transform_ == Identity()


def test_the_largest_factor_of_a_row_counts():
    noise = MissingNoise((1, 3), (4.0, 9.0))
    inputs = torch.tensor([[1.0, -0.2, 1.0, -0.3], [1.0, 2.0, 1.0, -0.3], [1.0, 2.0, 1.0, 0.5], [1.0, -2.0, 1.0, 0.5]])
    assert noise.factor(inputs).tolist() == [1.0, 4.0, 9.0, 9.0]
    assert (noise.weigh(Batch(inputs, normal(4, 1))).weights * noise.factor(inputs)).tolist() == [1.0] * 4
    weighted = noise.weigh(Batch(inputs, normal(4, 1), weights=torch.full((4,), 3.0)))
    assert weighted.weights.tolist() == pytest.approx([3, 3 / 4, 1 / 3, 1 / 3])
    predictive = RegressionPredictive(LowRankGaussian(normal(4, 1), normal(2, 4, 1), 0.1), torch.full((4, 1), 2.0))
    widened = noise.widen(predictive, inputs)
    assert widened.aleatoric.flatten().tolist() == [2.0, 8.0, 18.0, 18.0]
    assert torch.equal(widened.epistemic, predictive.epistemic)


def test_without_factors_rows_and_predictions_are_as_they_were():
    rows = Batch(normal(4, 2), normal(4, 1))
    assert MissingNoise().weigh(rows) is rows
    assert MissingNoise((1, 0), (1.0, 2.0)).larger() == MissingNoise((0,), (2.0,))


def test_saved_and_exported_models_have_the_same_noise(model, tmp_path):
    X, _ = table(50, 2)
    loaded = DEGPRegressor.load(model.save(tmp_path / "model"))
    assert loaded.missing_noise_ == model.missing_noise_
    for one, other in zip(model.predict(X, return_std=True), loaded.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(one, other)
    path = export_onnx(model, tmp_path / "model.onnx")
    assert max_difference(model, path, rows=200, random=np.random.default_rng(0)) < 1e-4


def test_an_update_trusts_a_row_with_a_missing_cell_less(tmp_path, model):
    """After the same surprise, predictions move less than if its noise were that of complete rows."""
    folder, new = model.save(tmp_path / "model"), pd.DataFrame({"a": [0.5], "b": [np.nan]})
    moved = []
    for noise in (model.missing_noise_, MissingNoise()):
        copy = DEGPRegressor.load(folder)
        copy.missing_noise_ = noise
        before = copy.predict(new)
        copy.update(new, before + 3.0)
        moved.append(float((copy.predict(new) - before)[0]))
    assert 0 < moved[0] < 0.2 * moved[1]
