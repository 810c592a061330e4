"""An exported graph equals its estimator, for any number of rows, and exporting leaves the estimator as it is."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from degp.export import _arcsin, _graph, export_onnx, max_difference, run_onnx
from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.transforms import Log

onnxruntime = pytest.importorskip("onnxruntime")
QUICK = {"steps": 6, "members": 3, "hidden_layers": (8, 8), "random_state": 0, "alpha": 1.0}


def table(rows=60):
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, 3)) * [1, 10, 0.1] + [0, 5, 2]
    return X, 100 + 20 * np.sin(X[:, 0]) + random.standard_normal(rows)


class Arcsine(torch.nn.Module):
    def forward(self, sine):
        return _arcsin(sine)


def test_the_arcsine_of_a_graph_has_double_precision(tmp_path):
    """onnxruntime has one in float32, and the exporter writes numbers in float32: the process amplifies such errors."""
    sine = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Arcsine(), (sine,), tmp_path / "arcsine.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "arcsine.onnx")
    (angle,) = session.run(None, {session.get_inputs()[0].name: sine.numpy()})
    np.testing.assert_allclose(angle, np.arcsin(sine.numpy()), rtol=0, atol=1e-12)


PARTS = ("epistemic", "aleatoric", "total")


def updated(model, X, y):
    return model.update(X[:5], y[:5] + 3)


def same(model, X, y):
    return model


REGRESSORS = {
    "DE-GP": ({}, same),
    "DE-GP, updated": ({}, updated),
    "noise by input": ({"noise": "input-dependent"}, same),
    "noise by input, updated": ({"noise": "input-dependent"}, updated),
    "DE": ({"method": "de"}, same),
    "DE, updated": ({"method": "de"}, updated),
    "DE, noise by input": ({"method": "de", "noise": "input-dependent"}, same),
}
NUMBERS, CLASSES = (("mean", *PARTS), ("probabilities", *PARTS))


def regressor(name, X, y):
    settings, then = REGRESSORS[name]
    return then(DEGPRegressor(**QUICK, **settings).fit(X, y), X, y)


def assert_same_numbers(outputs, model, X, y):
    spread = model.uncertainty(X)
    np.testing.assert_allclose(outputs["mean"], model.predict(X), rtol=0, atol=1e-5 * y.std())
    for part in PARTS:
        np.testing.assert_allclose(outputs[part], getattr(spread, part), rtol=1e-4, atol=1e-5 * y.var())


@pytest.mark.parametrize("name", REGRESSORS)
def test_the_graph_of_a_regressor_predicts_its_numbers(name):
    X, y = table()
    model = regressor(name, X, y)
    with torch.no_grad():
        outputs = [part.numpy() for part in _graph(model).float().eval()(torch.tensor(X, dtype=torch.float32))]
    assert_same_numbers(dict(zip(NUMBERS, outputs, strict=True)), model, X, y)


def test_the_graph_and_a_saved_model_embed_numbers_as_the_estimator_does(tmp_path):
    random = np.random.default_rng(1)
    X = random.uniform(-1, 1, (400, 2))
    y = 2.0 * (X[:, 0] > 0.3) - (X[:, 0] > -0.4) + (X[:, 1] > 0.1) + 0.05 * random.standard_normal(400)
    model = DEGPRegressor(**QUICK).fit(X, y)
    assert model.embedding_.places
    new = random.uniform(-1.2, 1.2, (50, 2))
    with torch.no_grad():
        outputs = [part.numpy() for part in _graph(model).double().eval()(torch.tensor(new))]
    assert_same_numbers(dict(zip(NUMBERS, outputs, strict=True)), model, new, y)
    loaded = DEGPRegressor.load(model.save(tmp_path / "model"))
    assert loaded.embedding_ == model.embedding_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def skewed(rows=120):
    X, y = table(rows)
    return X, np.exp((y - 100) / 10)


@pytest.mark.parametrize("settings, then", [({}, same), ({}, updated), ({"method": "de"}, same)])
@pytest.mark.parametrize("dtype, error", [(torch.float32, 1e-5), (torch.float64, 1e-6)])
def test_the_graph_of_a_model_of_the_log_predicts_its_numbers(settings, then, dtype, error):
    """Relative to each target, whose size varies."""
    X, y = skewed()
    model = then(DEGPRegressor(**QUICK, **settings).fit(X, y), X, y)
    assert model.target_transform_ == Log()
    with torch.no_grad():
        outputs = [part.double().numpy() for part in _graph(model).to(dtype).eval()(torch.tensor(X, dtype=dtype))]
    spread = model.uncertainty(X)
    mean = model.predict(X)
    np.testing.assert_allclose(outputs[0], mean, rtol=2 * error)  # of the exponential, where the log is eight
    for part, output in zip(PARTS, outputs[1:], strict=True):
        np.testing.assert_allclose(output, getattr(spread, part), rtol=20 * error, atol=error * (mean**2).min())


@pytest.mark.slow
def test_an_exported_model_of_the_log_predicts_its_numbers(tmp_path):
    X, y = skewed()
    model = DEGPRegressor(**QUICK).fit(X, y)
    path = export_onnx(model, tmp_path / "model.onnx")
    np.testing.assert_allclose(run_onnx(path, X)["mean"], model.predict(X), rtol=1e-5)
    assert max_difference(model, path, rows=200, random=np.random.default_rng(0)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DE-GP", "noise by input, updated", "DE, noise by input"])  # every branch of a graph
def test_an_exported_regressor_predicts_its_numbers(name, tmp_path):
    X, y = table()
    model = regressor(name, X, y)
    before = model.predict(X)
    path = export_onnx(model, tmp_path / "model.onnx")
    outputs = run_onnx(path, X)
    assert tuple(outputs) == NUMBERS
    assert_same_numbers(outputs, model, X, y)
    assert np.array_equal(model.predict(X), before)
    assert len(run_onnx(path, X[:1])["mean"]) == 1


@pytest.mark.slow
def test_several_targets_in_double_precision(tmp_path):
    X, y = table()
    model = DEGPRegressor(**QUICK).fit(X, np.stack([y, y**2], 1))
    path = export_onnx(model, tmp_path / "model.onnx", dtype=torch.float64)
    outputs, spread = run_onnx(path, X), model.uncertainty(X)
    np.testing.assert_allclose(outputs["mean"], model.predict(X), rtol=1e-5)
    np.testing.assert_allclose(outputs["total"], spread.total, rtol=2e-4)  # the exact variance is a small difference


def test_the_graph_of_a_classifier_has_its_exact_processes():
    X, y = table()
    model = DEGPClassifier(**QUICK).fit(X, np.digitize(y, [95, 110]))
    assert model.process_weight_ == 0.5
    with torch.no_grad():
        outputs = [part.numpy() for part in _graph(model).double().eval()(torch.tensor(X))]
    spread = model.uncertainty(X)
    np.testing.assert_allclose(outputs[0], model.predict_proba(X), atol=1e-9)
    for part, values in zip(PARTS, outputs[1:], strict=True):
        np.testing.assert_allclose(values, getattr(spread, part), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["degp", "de"])
def test_an_exported_classifier_predicts_its_probabilities(method, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = table()
    frame, labels = pandas.DataFrame(X, columns=["a", "b", "c"]), np.array(["low", "middle", "top"])
    model = DEGPClassifier(**QUICK, method=method).fit(frame, labels[np.digitize(y, [95, 110])])
    assert (model.process_weight_ > 0) == (method == "degp")
    path = export_onnx(model, tmp_path / "model.onnx")
    outputs, spread = run_onnx(path, X), model.uncertainty(frame)
    assert tuple(outputs) == CLASSES
    np.testing.assert_allclose(outputs["probabilities"], model.predict_proba(frame), atol=1e-5)
    for part in PARTS:
        np.testing.assert_allclose(outputs[part], getattr(spread, part), atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # random rows have no feature names
        assert max_difference(model, path, rows=20, random=np.random.default_rng(0)) < 1e-5
    metadata = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert metadata["features"] == '["a", "b", "c"]' and metadata["classes"] == '["low", "middle", "top"]'
    assert metadata["method"] == method


@pytest.mark.slow
def test_the_error_bars_of_a_noise_free_table_are_the_estimators(tmp_path):
    """They are differences of nearly equal numbers, and their noise is far below what an exporter may take for zero."""
    X = np.random.default_rng(0).uniform(size=(40, 2))
    model = DEGPRegressor(**QUICK).fit(X, np.sin(3 * X[:, 0]) + X[:, 1] ** 2)
    model.process_ = replace(model.process_, scales=replace(model.process_.scales, noise_variance=4e-9))
    assert model.process_weight_ == 1
    path, new = export_onnx(model, tmp_path / "model.onnx", dtype=torch.float64), X[:10] + 0.05
    outputs, spread = run_onnx(path, new), model.uncertainty(new)
    for part in PARTS:
        np.testing.assert_allclose(outputs[part], getattr(spread, part), rtol=1e-2)


def test_the_graph_of_a_linear_process_of_classes_predicts_its_probabilities(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 2))
    model = DEGPClassifier(**QUICK).fit(x, x[:, 0] + 0.5 * x[:, 1] + 0.3 * random.normal(size=150) > 0)
    assert model.process_.scales.depth == 0
    path = export_onnx(model, tmp_path / "model.onnx")
    assert max_difference(model, path, rows=100, random=np.random.default_rng(1)) < 1e-5
