"""Saved models: predictions are bit-for-bit equal after loading, and a model that cannot be loaded says why."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.tabular import Preprocessing, Target, folders, read_table
from degp.tabular.evaluating import evaluate_rows
from degp.tabular.folders import checksum
from degp.tabular.model import predict_rows, prepare
from degp.tabular.saving import ModelError, load_model, save_model
from degp.transforms import Log
from tests.tabular.cases import houses

QUICK = {"members": 3, "hidden_layers": (8,), "alpha": 1.0, "steps": 3, "random_state": 0}
X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.stack([X[:, 0] + 0.1 * X[:, 1], 5 - 3 * X[:, 2]], axis=1)
WORDS = np.where(X[:, 0] > 0.5, "high", np.where(X[:, 0] < -0.5, "low", "middle"))


def predictions(estimator):
    """All predictions of an estimator for the same rows."""
    spread = estimator.uncertainty(X)
    parts = [spread.epistemic, spread.aleatoric, spread.total]
    if isinstance(estimator, DEGPClassifier):
        return [*parts, estimator.predict_proba(X), estimator.predict(X)]
    mean, std = estimator.predict(X, return_std=True)
    conformal = estimator.predict_interval(X, 0.7, conformal=True)
    return [*parts, mean, std, estimator.predict_interval(X), conformal, estimator.sample_y(X, 3)]


def assert_same(estimator, folder):
    """Saving and loading changes no bit and no fitted attribute."""
    loaded = load_model(save_model(folder, estimator)).estimator
    for before, after in zip(predictions(estimator), predictions(loaded), strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    assert vars(loaded).keys() == vars(estimator).keys()
    for name in ("alpha_", "seed_", "n_iter_", "history_", "validation_nll_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(estimator, name)
    assert loaded.get_params() == estimator.get_params()


@pytest.fixture(scope="module")
def regressor():
    return DEGPRegressor(**QUICK).fit(X, Y[:, 0])


@pytest.fixture
def folder(regressor, tmp_path):
    return save_model(tmp_path / "model", regressor)


@pytest.mark.parametrize("noise", ["constant", "input-dependent"])
@pytest.mark.parametrize("targets", [Y[:, 0], Y], ids=["one", "two"])
def test_regressor_is_restored_bit_for_bit(noise, targets, tmp_path):
    assert_same(DEGPRegressor(**QUICK, noise=noise).fit(X, targets), tmp_path / "model")


def test_a_model_of_the_log_is_restored_bit_for_bit(tmp_path):
    model = DEGPRegressor(**QUICK).fit(X, np.exp(Y[:, 0] + 0.3 * Y[:, 1]))
    assert model.target_transform_ == Log()
    assert_same(model, tmp_path / "model")
    assert DEGPRegressor.load(tmp_path / "model").target_transform_ == Log()


def test_an_unknown_transform_is_not_loaded(folder):
    metadata = json.loads((folder / "model.json").read_text())
    metadata["target_transform"] = "sqrt"
    del metadata["checksum"]
    (folder / "model.json").write_text(json.dumps(metadata | {"checksum": checksum(metadata)}))
    with pytest.raises(ModelError, match="a transform of the target must be one of identity, log, but it is 'sqrt'"):
        load_model(folder)


@pytest.mark.parametrize("method", ["de", "rde", "rms"])
def test_baselines_are_restored_bit_for_bit(method, tmp_path):
    assert_same(DEGPRegressor(**QUICK, method=method).fit(X, Y), tmp_path / "model")


def test_regressor_is_restored_after_updates(tmp_path):
    model = DEGPRegressor(**QUICK).fit(X[:30], Y[:30, 0])
    model.update(X[30:35], Y[30:35, 0]).update(X[35:], Y[35:, 0])
    assert_same(model, tmp_path / "model")


def test_loaded_regressor_is_updated_as_the_saved_one_is(regressor, folder):
    loaded = load_model(folder).estimator.update(X[:9], Y[:9, 0])
    updated = load_model(folder).estimator.update(X[:9], Y[:9, 0])
    np.testing.assert_array_equal(loaded.predict(X), updated.predict(X))
    assert not np.array_equal(loaded.predict(X), regressor.predict(X))


@pytest.mark.parametrize(
    "classes",
    [WORDS, WORDS.astype(object), WORDS == "high", (WORDS == "high") * 2.0, np.where(WORDS == "low", -1, 7)],
    ids=["text", "objects", "booleans", "floats", "integers"],
)
def test_classifier_is_restored_bit_for_bit(classes, tmp_path):
    assert_same(DEGPClassifier(**QUICK).fit(X, classes), tmp_path / "model")


def test_names_of_features_are_restored(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    estimator = DEGPRegressor(**QUICK).fit(frame, Y[:, 0])
    loaded = load_model(save_model(tmp_path / "model", estimator)).estimator
    np.testing.assert_array_equal(loaded.predict(frame), estimator.predict(frame))
    with pytest.raises(ValueError, match="must have the columns 'a', but has 'z', 'b', 'c'"):
        loaded.predict(frame.rename(columns={"a": "z"}))


def test_preprocessing_target_and_metrics_are_restored(tmp_path):
    frame = pd.DataFrame({"x": X[:, 0], "colour": np.where(X[:, 1] > 0, "red", "blue"), "y": Y[:, 0]})
    target, preprocessing = Target.fit(frame, "y"), Preprocessing.fit(frame, "y")
    estimator = DEGPRegressor(**QUICK).fit(preprocessing.encode(frame), Y[:, 0])
    save_model(tmp_path / "m", estimator, target=target, metrics={"nll": 0.5})
    model = load_model(tmp_path / "m")
    assert (model.preprocessing, model.target, model.metadata["metrics"]) == (preprocessing, target, {"nll": 0.5})


@pytest.mark.parametrize("estimator, target", [(DEGPRegressor, "price"), (DEGPClassifier, "garden")])
def test_a_table_is_predicted_bit_for_bit_equally_after_loading(estimator, target, tmp_path):
    frame = houses()
    rows, y = frame.drop(columns=target), frame[target]
    fitted = estimator(**QUICK).fit(rows, y)
    loaded = estimator.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(rows), fitted.predict(rows))
    np.testing.assert_array_equal(loaded.uncertainty(rows).total, fitted.uncertainty(rows).total)
    np.testing.assert_array_equal(loaded.feature_names_in_, fitted.feature_names_in_)
    assert loaded.preprocessing_ == fitted.preprocessing_ and loaded.n_features_in_ == fitted.n_features_in_
    assert vars(loaded).keys() == vars(fitted).keys()
    assert loaded.feature_relevance_ == fitted.feature_relevance_


def test_sets_of_classes_are_restored_bit_for_bit(tmp_path):
    fitted = DEGPClassifier(**QUICK).fit(X, WORDS).conformalize(X[:20], WORDS[:20])
    loaded = DEGPClassifier.load(fitted.save(tmp_path / "model"))
    for level in (0.3, 0.6, 0.9):
        np.testing.assert_array_equal(
            loaded.predict_set(X, level, conformal=True), fitted.predict_set(X, level, conformal=True)
        )


@pytest.mark.parametrize("target", ["price", "garden"])
def test_what_an_estimator_saved_the_command_line_reads(target, tmp_path):
    frame = houses()
    kind = DEGPRegressor if target == "price" else DEGPClassifier
    fitted = kind(**QUICK).fit(frame.drop(columns=target), frame[target])
    model = load_model(fitted.save(tmp_path / "model"))
    assert (model.target.name, model.target.task) == (target, "regression" if target == "price" else "classification")
    predicted = predict_rows(model, frame)
    column = "mean" if target == "price" else "prediction"
    np.testing.assert_array_equal(predicted[column], fitted.predict(frame.drop(columns=target)))
    assert evaluate_rows(model, frame, resamples=3, generator=torch.Generator())[target]["rows"] == len(frame)


@pytest.mark.parametrize("target", ["price", "garden"])
def test_what_the_command_line_saved_an_estimator_reads(target, tmp_path):
    frame = houses()
    rows = prepare(frame, target)
    kind = DEGPRegressor if target == "price" else DEGPClassifier
    estimator = kind(**QUICK).fit(rows.inputs, rows.targets)
    loaded = kind.load(save_model(tmp_path / "model", estimator, target=rows.target))
    same = kind(**QUICK).fit(frame.drop(columns=target), frame[target])
    new = frame.drop(columns=target)
    np.testing.assert_array_equal(loaded.predict(new), same.predict(new))
    assert loaded.target_name_ == target


def test_a_model_is_loaded_by_its_own_class(folder):
    with pytest.raises(ModelError, match="of a DEGPClassifier, but it is of a DEGPRegressor; load it by DEGPRegressor"):
        DEGPClassifier.load(folder)


def test_loaded_estimator_can_be_fitted_again(folder, regressor):
    again = clone(load_model(folder).estimator).fit(X, Y[:, 0])
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))


def test_loading_leaves_the_global_generator_as_it_is(folder):
    before = torch.get_rng_state()
    load_model(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_estimator_with_a_generator_as_random_state_is_restored(tmp_path):
    estimator = DEGPRegressor(**QUICK | {"random_state": np.random.RandomState(3)}).fit(X, Y)
    loaded = load_model(save_model(tmp_path / "model", estimator)).estimator
    np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))


def test_a_model_replaces_another(folder):
    (folder / "notes.txt").write_text("mine")
    save_model(folder, DEGPClassifier(**QUICK).fit(X, WORDS))
    assert isinstance(load_model(folder).estimator, DEGPClassifier)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors", ".txt"]


@pytest.mark.parametrize("step", ["save", "write_json"])
def test_a_failed_replacement_leaves_the_old_model(step, folder, regressor, monkeypatch):
    def fail(*arguments):
        raise OSError("no space left on device")

    other = DEGPRegressor(**QUICK).fit(X, Y[:, 1])
    monkeypatch.setattr(folders, step, fail)
    with pytest.raises(OSError, match="no space"):
        save_model(folder, other)
    np.testing.assert_array_equal(load_model(folder).estimator.predict(X), regressor.predict(X))


def test_a_failed_save_leaves_nothing(regressor, tmp_path):
    with pytest.raises(TypeError):
        save_model(tmp_path / "model", regressor, metrics={"odd": object()})
    assert not list(tmp_path.iterdir())


def test_other_files_are_not_replaced(regressor, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ModelError, match="other files"):
        save_model(tmp_path, regressor)
    with pytest.raises(ModelError, match="is a file"):
        save_model(tmp_path / "thesis.tex", regressor)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_only_fitted_estimators_of_degp_are_saved(tmp_path):
    with pytest.raises(NotFittedError):
        save_model(tmp_path / "model", DEGPRegressor())

    class Mine(DEGPRegressor):
        pass

    with pytest.raises(ModelError, match="DEGPRegressor, DEGPClassifier, but it is a Mine"):
        save_model(tmp_path / "model", Mine(**QUICK).fit(X, Y))


def test_no_pickle_is_in_a_model(folder):
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]


def edit(folder, **changes):
    """Changes values in model.json together with its checksum; returns the old content."""
    metadata = json.loads((folder / "model.json").read_text())
    other = metadata | changes
    (folder / "model.json").write_text(json.dumps(other | {"checksum": checksum(other)}))
    return metadata


def test_a_changed_value_is_detected(folder):
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(text.replace('"epsilon": 0.005', '"epsilon": 0.85'))
    with pytest.raises(ModelError, match="damaged or was edited"):
        load_model(folder)


def test_other_white_space_is_accepted(folder, regressor):
    (folder / "model.json").write_text(json.dumps(json.loads((folder / "model.json").read_text())))
    np.testing.assert_array_equal(load_model(folder).estimator.predict(X), regressor.predict(X))


FILES = Path(__file__).parent / "files"


@pytest.mark.parametrize("schema", [1, 3])
@pytest.mark.parametrize("name", ["numbers", "classes"])
def test_models_of_earlier_schemas_still_load(name, schema):
    place = FILES / f"schema-{schema}"
    predictions = predict_rows(load_model(place / name), read_table(place / "rows.csv"))
    pd.testing.assert_frame_equal(predictions, pd.read_csv(place / f"{name}.csv"), rtol=1e-6)


@pytest.mark.parametrize("schema", [1, 3])
def test_models_of_earlier_schemas_are_estimators(schema):
    place = FILES / f"schema-{schema}"
    rows = read_table(place / "rows.csv")
    means = DEGPRegressor.load(place / "numbers").predict(rows)
    np.testing.assert_allclose(means, pd.read_csv(place / "numbers.csv")["mean"], rtol=1e-6)
    labels = DEGPClassifier.load(place / "classes").predict(rows)
    assert labels.tolist() == pd.read_csv(place / "classes.csv")["prediction"].tolist()


def test_an_estimator_of_numbers_of_schema_3_still_loads():
    saved = pd.read_csv(FILES / "schema-3" / "plain.csv")
    loaded = DEGPRegressor.load(FILES / "schema-3" / "plain")
    np.testing.assert_allclose(loaded.predict(saved[["noise", "size"]]), saved["mean"], rtol=1e-6)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"schema": 99}, "schema 99.*update degp"),
        ({"schema": "two"}, "as save_model wrote it"),
        ({"estimator": "RandomForest"}, "DEGPRegressor, DEGPClassifier, but it is a 'RandomForest'"),
        ({"estimator": "DEGPClassifier"}, "as save_model wrote it"),
        ({"likelihood": "Poisson"}, "must be a Gaussian"),
        ({"n_features": 4}, "ensemble/.* should be"),
        ({"n_targets": 2}, "ensemble/.* should be"),
        ({"parameters": {}}, "as save_model wrote it"),
        ({"tensors": "../../etc/passwd"}, "must contain the tensors"),
        ({"sha256": "0"}, "damaged"),
        ({"preprocessing": {"schema": 7}}, "schema 1"),
    ],
)
def test_a_value_that_does_not_fit_is_reported(changes, message, folder):
    edit(folder, **changes)
    with pytest.raises(ModelError, match=message):
        load_model(folder)


def test_a_folder_without_a_model_is_reported(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ModelError, match=r"has no model\.json"):
            load_model(place)


@settings(max_examples=20)
@given(data=st.data())
def test_damage_anywhere_is_detected(data, regressor, tmp_path_factory):
    folder = save_model(tmp_path_factory.mktemp("damaged") / "model", regressor)
    (path,) = folder.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), place + 1]))])
    with pytest.raises(ModelError, match="damaged"):
        load_model(folder)
    shutil.rmtree(folder)


def test_a_model_of_an_unavailable_device_runs_on_the_cpu(folder, regressor):
    metadata = edit(folder)
    edit(folder, parameters=metadata["parameters"] | {"device": "cuda"})
    if torch.cuda.is_available():
        pytest.skip("the device is available")
    with pytest.warns(UserWarning, match="runs on the CPU"):
        loaded = load_model(folder).estimator
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))
