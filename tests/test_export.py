"""An exported graph says what its estimator says, for any number of rows, and nothing else is changed by exporting."""

import numpy as np
import pytest
import torch

from degp.export import difference, export_onnx, run_onnx
from degp.sklearn import DEGPClassifier, DEGPRegressor

onnxruntime = pytest.importorskip("onnxruntime")
QUICK = {"max_epochs": 6, "members": 3, "hidden_layers": (8, 8), "random_state": 0, "alphas": (0.1,)}


def table(rows=60):
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, 3)) * [1, 10, 0.1] + [0, 5, 2]
    return X, 100 + 20 * np.sin(X[:, 0]) + random.standard_normal(rows)


def updated(model, X, y):
    return model.update(X[:5], y[:5] + 3)


def same(model, X, y):
    return model


REGRESSORS = {
    "DE-GP": ({}, same),
    "DE-GP, updated": ({}, updated),
    "noise by input": ({"noise": "input-dependent"}, same),
    "DE": ({"objective": "de"}, same),
    "DE, updated": ({"objective": "de"}, updated),
    "DE, noise by input": ({"objective": "de", "noise": "input-dependent"}, same),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_numbers(name, tmp_path):
    settings, then = REGRESSORS[name]
    X, y = table()
    model = then(DEGPRegressor(**QUICK, **settings).fit(X, y), X, y)
    before = model.predict(X)
    path = export_onnx(model, tmp_path / "model.onnx")
    outputs, spread = run_onnx(path, X), model.uncertainty(X)
    assert list(outputs) == ["mean", "epistemic", "aleatoric", "total"]
    np.testing.assert_allclose(outputs["mean"], before, rtol=0, atol=1e-5 * y.std())
    for part in ("epistemic", "aleatoric", "total"):
        np.testing.assert_allclose(outputs[part], getattr(spread, part), rtol=1e-4, atol=1e-5 * y.var())
    assert np.array_equal(model.predict(X), before)
    assert len(run_onnx(path, X[:1])["mean"]) == 1


def test_several_targets_in_double_precision(tmp_path):
    X, y = table()
    model = DEGPRegressor(**QUICK).fit(X, np.stack([y, y**2], 1))
    path = export_onnx(model, tmp_path / "model.onnx", dtype=torch.float64)
    outputs, spread = run_onnx(path, X), model.uncertainty(X)
    np.testing.assert_allclose(outputs["mean"], model.predict(X), rtol=1e-5)
    np.testing.assert_allclose(outputs["total"], spread.total, rtol=1e-5)


@pytest.mark.parametrize("objective", ["degp", "de"])
def test_classes(objective, tmp_path):
    X, y = table()
    model = DEGPClassifier(**QUICK, objective=objective).fit(X, np.digitize(y, [95, 110]))
    path = export_onnx(model, tmp_path / "model.onnx")
    outputs, spread = run_onnx(path, X), model.uncertainty(X)
    assert list(outputs) == ["probabilities", "epistemic", "aleatoric", "total"]
    np.testing.assert_allclose(outputs["probabilities"], model.predict_proba(X), atol=1e-5)
    for part in ("epistemic", "aleatoric", "total"):
        np.testing.assert_allclose(outputs[part], getattr(spread, part), atol=1e-5)
    assert difference(model, path, rows=20, random=np.random.default_rng(0)) < 1e-5


def test_the_file_says_what_goes_in_and_comes_out(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = table()
    model = DEGPClassifier(**QUICK).fit(pandas.DataFrame(X, columns=["a", "b", "c"]), np.where(y > 100, "yes", "no"))
    facts = onnxruntime.InferenceSession(export_onnx(model, tmp_path / "m.onnx")).get_modelmeta().custom_metadata_map
    assert facts["features"] == '["a", "b", "c"]' and facts["classes"] == '["no", "yes"]'
    assert facts["objective"] == "degp"
