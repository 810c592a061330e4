"""The estimators keep scikit-learn's contract, and their error bars hold."""

import contextlib
import copy
import io
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_moons
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.tabular.estimator import as_tensor
from degp.tabular.model import validation_nll
from degp.training import CheckpointError, loop
from degp.transforms import Identity, Log

TINY = {
    "members": 2,
    "hidden_layers": (16,),
    "alpha": 1.0,
    "steps": 60,
    "learning_rate": 0.05,
    "random_state": 0,
}
LINE = {"members": 5, "hidden_layers": (32, 32), "alpha": 1.0, "steps": 150, "random_state": 0}


def beyond_the_contract(estimator) -> dict[str, str]:
    """Run-time type checks refuse nonsense where scikit-learn wants it kept for `fit`; training is stochastic."""
    stochastic = "other rows have other validation rows, batches and draws; tests/test_laws.py has the exact law"
    return {
        "check_do_not_raise_errors_in_init_or_set_params": "annotations are checked in tests",
        "check_sample_weight_equivalence_on_dense_data": stochastic,
        "check_sample_weight_equivalence_on_sparse_data": stochastic,
    }


@parametrize_with_checks([DEGPRegressor(**TINY), DEGPClassifier(**TINY)], expected_failed_checks=beyond_the_contract)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def waves(rows: int, seed: int = 0, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """y = 10 + 5 (sin 2x₁ + x₂ / 2 + noise) on inputs of very different scale."""
    random = np.random.default_rng(seed)
    x = random.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] / 2 + noise * random.standard_normal(rows)
    return x * [1, 1000], 10 + 5 * y


@pytest.fixture(scope="module")
def fitted() -> DEGPRegressor:
    return DEGPRegressor(**LINE).fit(*waves(300))


def test_intervals_cover_what_they_say(fitted):
    X, y = waves(2000, seed=1)
    low, high = fitted.predict_interval(X, 0.9).T
    assert 0.82 < np.mean((low <= y) & (y <= high)) < 0.97  # the noise is calibrated on 45 rows


def test_conformal_intervals_cover_at_any_level(fitted):
    calibrated = clone(fitted).fit(*waves(300)).conformalize(*waves(400, seed=2))
    X, y = waves(2000, seed=3)
    for level in (0.5, 0.8, 0.95):
        low, high = calibrated.predict_interval(X, level, conformal=True).T
        assert abs(np.mean((low <= y) & (y <= high)) - level) < 0.06


def test_too_few_rows_for_a_conformal_level_give_an_infinite_interval(fitted):
    calibrated = clone(fitted).fit(*waves(300)).conformalize(*waves(5, seed=2))
    assert np.isinf(calibrated.predict_interval(waves(1)[0], 0.95, conformal=True)).all()


@pytest.mark.parametrize("conformal", [False, True])
def test_intervals_of_several_levels_are_nested(fitted, conformal):
    X, _ = waves(50, seed=4)
    levels = [0.5, 0.9, 0.1]
    ends = fitted.predict_interval(X, levels, conformal=conformal)
    assert ends.shape == (50, 3, 2)
    for place, level in enumerate(levels):
        np.testing.assert_array_equal(ends[:, place], fitted.predict_interval(X, level, conformal=conformal))
    inner, middle, outer = (ends[:, place] for place in np.argsort(levels))
    for inside, outside in ((inner, middle), (middle, outer)):
        assert (outside[:, 0] < inside[:, 0]).all() and (inside[:, 1] < outside[:, 1]).all()


def test_standard_deviation_covariance_and_uncertainty_agree(fitted):
    X, _ = waves(20, seed=4)
    mean, std = fitted.predict(X, return_std=True)
    same_mean, covariance = fitted.predict(X, return_cov=True)
    uncertainty = fitted.uncertainty(X)
    np.testing.assert_allclose(mean, same_mean)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-5)
    np.testing.assert_allclose(uncertainty.total, std**2, rtol=1e-5)
    np.testing.assert_allclose(uncertainty.epistemic + uncertainty.aleatoric, uncertainty.total, rtol=1e-5)


def test_samples_have_the_predicted_moments(fitted):
    X, _ = waves(10, seed=5)
    mean, covariance = fitted.predict(X, return_cov=True)
    draws = fitted.sample_y(X, 20_000, random_state=1)
    variance = covariance.diagonal()
    errors = np.sqrt((np.outer(variance, variance) + covariance**2) / 20_000)  # standard errors of a covariance
    assert (np.abs(draws.mean(1) - mean) < 5 * np.sqrt(variance / 20_000)).all()
    assert (np.abs(np.cov(draws) - covariance) < 5 * errors).all()


def prices(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Positive targets, whose noise is proportional to them."""
    X, y = waves(rows, seed)
    return X, np.exp((y - 10) / 5 + 2)


@pytest.fixture(scope="module")
def skewed() -> DEGPRegressor:
    return DEGPRegressor(**LINE).fit(*prices(300))


def test_intervals_of_skewed_targets_cover_and_are_positive(skewed):
    assert skewed.target_transform_ == Log()
    X, y = prices(2000, seed=1)
    for conformal in (False, True):
        low, high = skewed.predict_interval(X, 0.9, conformal=conformal).T
        assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.95
        assert (low > 0).all()


def test_moments_samples_and_quantiles_of_skewed_targets_agree(skewed):
    X, _ = prices(6, seed=5)
    mean, std = skewed.predict(X, return_std=True)
    same_mean, covariance = skewed.predict(X, return_cov=True)
    uncertainty, draws = skewed.uncertainty(X), skewed.sample_y(X, 200_000, random_state=1)
    np.testing.assert_allclose(same_mean, mean)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-5)
    np.testing.assert_allclose(uncertainty.epistemic + uncertainty.aleatoric, std**2, rtol=1e-9)
    np.testing.assert_allclose(draws.mean(1), mean, rtol=0.01)
    np.testing.assert_allclose(np.cov(draws), covariance, rtol=0.05, atol=0.05 * covariance.max())
    ends = skewed.predict_interval(X, [0.5, 0.9])
    expected = np.quantile(draws, [[0.25, 0.75], [0.05, 0.95]], axis=1)
    np.testing.assert_allclose(ends, np.moveaxis(expected, -1, 0), rtol=0.02)
    assert (mean - ends[:, 1, 0] < ends[:, 1, 1] - mean).all()


def test_the_unit_of_skewed_targets_is_theirs(skewed):
    X, y = prices(300)
    scaled = clone(skewed).fit(X, 1000 * y)
    np.testing.assert_allclose(scaled.predict(X), 1000 * skewed.predict(X), rtol=1e-3)
    np.testing.assert_allclose(validation_nll(scaled) - validation_nll(skewed), np.log(1000), atol=1e-3)


def test_the_held_out_nll_of_skewed_targets_is_that_of_new_ones(skewed):
    X, y = prices(2000, seed=6)
    density = skewed._predictive(X).log_prob(torch.tensor(y)[:, None])
    assert abs(validation_nll(skewed) + float(density.mean())) < 0.1


def test_skewed_targets_are_updated_by_their_log(skewed):
    X, y = prices(300)
    model = copy.deepcopy(skewed).update(X[:20], 1.5 * y[:20])
    assert np.mean(model.predict(X[:20]) > skewed.predict(X[:20])) > 0.9
    assert (model.uncertainty(X[:20]).epistemic < 1.5 * skewed.uncertainty(X[:20]).epistemic).all()
    with pytest.raises(ValueError, match=r"targets must be positive, .* but one is 0; leave it out, or fit again"):
        model.update(X[:2], [1.0, 0.0])


def test_baselines_predict_skewed_targets_by_their_log_too():
    X, y = prices(150)
    model = DEGPRegressor(**LINE | {"method": "de", "steps": 400}).fit(X, y)
    assert model.target_transform_ == Log() and (model.predict_interval(X) > 0).all()
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.8


@pytest.mark.parametrize("change", [lambda y: y - y.min(), lambda y: np.stack([y, y], 1)], ids=["zero", "two"])
def test_zeros_and_several_targets_have_no_log(change):
    X, y = prices(40)
    assert DEGPRegressor(**TINY).fit(X, change(y)).target_transform_ == Identity()


def test_far_from_the_data_the_model_knows_less(fitted):
    near, far = fitted.uncertainty(np.array([[0.0, 0.0]])), fitted.uncertainty(np.array([[6.0, 6000.0]]))
    assert far.epistemic > 5 * near.epistemic


@pytest.mark.parametrize("steps", [0, 150])
def test_small_tables_are_predicted_by_the_exact_process_too(steps):
    """An ensemble that has learned nothing is left out; one that has learned is averaged with the process."""
    X, y = waves(100)
    model = DEGPRegressor(**LINE | {"steps": max(steps, 1), "learning_rate": 0.01 if steps else 1e-9}).fit(X, y)
    assert model.process_weight_ == (0.5 if steps else 1.0)
    process = model.process_.predictive(model._standardised(torch.tensor(X, dtype=torch.float64)))
    members = model._ensemble_predictive(model._standardised(torch.tensor(X, dtype=torch.float64)))
    mean = process.mean if not steps else (process.mean + members.mean) / 2
    np.testing.assert_allclose(model.predict(X), model.target_scaling_.undo(mean)[:, 0], rtol=1e-9)


def test_large_tables_are_predicted_by_the_ensemble():
    model = DEGPRegressor(**LINE | {"exact_rows": 50}).fit(*waves(100))
    assert model.process_weight_ == 0 and len(model.process_.rows) == 50
    assert DEGPRegressor(**TINY | {"exact_rows": 0}).fit(*waves(40)).process_ is None


def test_a_simulator_is_fitted_as_sharply_as_its_rows_allow():
    """Targets without noise: eight decades below the variance of the targets."""
    random = np.random.default_rng(0)
    X, new = random.uniform(-1, 1, (2, 200, 2))
    f = lambda x: np.sin(2 * x[:, 0]) + x[:, 1] ** 2  # noqa: E731
    model = DEGPRegressor(**LINE).fit(X, f(X))
    mean, std = model.predict(new, return_std=True)
    assert model.process_weight_ == 1 and model.process_.scales.activation == "erf"
    assert np.sqrt(np.mean((mean - f(new)) ** 2)) < 1e-3 * f(X).std()
    assert np.mean(np.abs(mean - f(new)) < 1.645 * std) > 0.8


def test_an_update_moves_the_prediction_to_new_labels_and_shrinks_what_is_unknown():
    model = DEGPRegressor(**LINE | {"exact_rows": 0}).fit(*waves(100))
    X, y = waves(200, seed=6)
    shifted = y + 3
    before, unknown = model.predict(X), model.uncertainty(X).epistemic
    model.update(X[:100], shifted[:100]).update(X[100:], shifted[100:])
    assert np.mean((model.predict(X) - shifted) ** 2) < np.mean((before - shifted) ** 2)
    assert (model.uncertainty(X).epistemic < unknown).all()


def test_two_updates_are_one():
    one, two = (DEGPRegressor(**LINE).fit(*waves(60)) for _ in range(2))
    X, y = waves(80, seed=7)
    one.update(X, y)
    two.update(X[:30], y[:30]).update(X[30:], y[30:])
    np.testing.assert_allclose(*(model.predict(X, return_std=True) for model in (one, two)), rtol=1e-5)


def test_several_targets_have_error_bars_each():
    X, y = waves(200)
    Y = np.stack([y, -3 * y + 1], axis=1)
    model = DEGPRegressor(**LINE).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (200, 2)
    assert model.predict_interval(X).shape == (200, 2, 2)
    assert model.predict_interval(X, [0.5, 0.8, 0.9]).shape == (200, 2, 3, 2)
    assert model.predict(X[:5], return_cov=True)[1].shape == (5, 5, 2)
    np.testing.assert_allclose(std[:, 1].mean() / std[:, 0].mean(), 3, rtol=0.1)


def test_noise_that_depends_on_the_input_is_found():
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (600, 1))
    y = np.sin(x[:, 0]) + np.where(x[:, 0] > 0, 1.0, 0.1) * random.standard_normal(600)
    model = DEGPRegressor(**LINE | {"noise": "input-dependent", "steps": 300}).fit(x, y)
    noisy, quiet = model.uncertainty(np.array([[1.0], [-1.0]])).aleatoric
    assert noisy > 10 * quiet


@pytest.mark.parametrize("method", ["degp", "de", "rde", "rms"])
def test_every_method_is_the_same_class(method):
    X, y = waves(150)
    model = DEGPRegressor(**LINE | {"method": method}).fit(X, y)
    assert model.score(X, y) > 0.7
    assert (model.alpha_ is not None) == (method == "degp")


def test_classifier_probabilities_and_uncertainty():
    X, y = make_moons(300, noise=0.25, random_state=0)
    names = np.array(["left", "right"])[y]
    model = DEGPClassifier(**LINE).fit(X, names)
    test, truth = make_moons(500, noise=0.25, random_state=1)
    assert model.score(test, np.array(["left", "right"])[truth]) > 0.88
    np.testing.assert_allclose(model.predict_proba(test).sum(1), 1, atol=1e-5)
    uncertainty = model.uncertainty(test)
    np.testing.assert_allclose(uncertainty.epistemic + uncertainty.aleatoric, uncertainty.total, atol=1e-5)
    np.testing.assert_array_equal(model.predict_proba(test), model.predict_proba(test))


def test_small_tables_of_classes_are_predicted_by_the_exact_processes_too():
    X, y = make_moons(120, noise=0.3, random_state=0)
    model = DEGPClassifier(**TINY).fit(X, y)
    assert model.process_weight_ == 0.5 and len(model.process_.rows) == 120
    probabilities, points = model.predict_proba(X), model._standardised(as_tensor(X))
    process = model.process_.predictive(points).probabilities.numpy()
    model.process_ = None
    np.testing.assert_allclose(probabilities, (model.predict_proba(X) + process) / 2, atol=1e-12)
    assert DEGPClassifier(**TINY | {"exact_rows": 0}).fit(X, y).process_weight_ == 0
    assert DEGPClassifier(**TINY, method="de").fit(X, y).process_weight_ == 0


@pytest.fixture(scope="module")
def moons() -> DEGPClassifier:
    X, y = make_moons(300, noise=0.35, random_state=0)
    return DEGPClassifier(**LINE).fit(X, np.array(["left", "right"])[y])


def test_sets_of_classes_grow_with_the_level_and_are_never_empty(moons):
    X, _ = make_moons(300, noise=0.35, random_state=1)
    for conformal in (False, True):
        sets = [moons.predict_set(X, level, conformal=conformal) for level in (0.05, 0.5, 0.8, 0.95, 0.99)]
        assert all(each.any(1).all() for each in sets)
        assert all((small <= large).all() for small, large in itertools.pairwise(sets))
        assert sets[0].sum() < sets[-1].sum()
        best = moons.predict_proba(X).argmax(1)
        assert all(each[np.arange(300), best].all() for each in sets)


def test_conformal_sets_cover_though_the_probabilities_are_wrong(moons):
    """Labels are swapped at random in 20 % of the rows after training, which the classifier cannot know."""

    def swapped(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = make_moons(rows, noise=0.35, random_state=seed)
        return X, np.array(["left", "right"])[y ^ (np.random.default_rng(seed).random(rows) < 0.2)]

    X, y = swapped(2000, 3)
    place = np.searchsorted(moons.classes_, y)
    calibrated = copy.deepcopy(moons).conformalize(*swapped(500, 2))
    plain, conformal = (
        calibrated.predict_set(X, 0.9, conformal=c)[np.arange(2000), place].mean() for c in (False, True)
    )
    assert plain < 0.87 and 0.88 < conformal


def test_classes_that_training_has_not_seen_cannot_calibrate(moons):
    with pytest.raises(ValueError, match="must have classes of training, but row 1 has 'up', which is none of the 2"):
        moons.conformalize([[0.0, 1.0], [1.0, 0.0]], ["left", "up"])


def test_seeds_repeat_and_differ():
    X, y = waves(60)
    one, same, other = (DEGPRegressor(**LINE | {"random_state": s}).fit(X, y).predict(X) for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_pipeline_grid_search_and_joblib():
    joblib = pytest.importorskip("joblib")
    X, y = waves(80)
    short = DEGPRegressor(**LINE | {"steps": 20})
    search = GridSearchCV(make_pipeline(StandardScaler(), short), {"degpregressor__members": [2, 3]}, cv=2).fit(X, y)
    file = io.BytesIO()
    joblib.dump(search.best_estimator_, file)
    file.seek(0)
    np.testing.assert_array_equal(joblib.load(file).predict(X), search.predict(X))


def test_mapie_wraps_it(fitted):
    mapie = pytest.importorskip("mapie.regression")
    scores = pytest.importorskip("mapie.conformity_scores")
    wrapper = mapie.SplitConformalRegressor(
        fitted, confidence_level=0.9, conformity_score=scores.StdConformityScore(), prefit=True
    )
    wrapper.conformalize(*waves(300, seed=8))
    X, y = waves(1000, seed=9)
    _, intervals = wrapper.predict_interval(X)
    assert 0.85 < np.mean((intervals[:, 0, 0] <= y) & (y <= intervals[:, 1, 0])) < 0.95


def test_training_ends_with_its_time():
    X, y = waves(2000)
    model = DEGPRegressor(**LINE | {"steps": 100_000, "max_seconds": 1.0}).fit(X, y)
    *before, last = model.history_
    assert all(record["seconds"] < 1.0 for record in before) and last["seconds"] >= 1.0


@pytest.mark.parametrize("seed", [3, 4])
def test_intervals_hold_on_a_small_table(seed):
    """Fifteen rows have selected the epoch; the noise that minimises their NLL would be too small by half."""
    X, y = waves(2000, seed=99)
    low, high = DEGPRegressor(**LINE).fit(*waves(100, seed)).predict_interval(X, 0.9).T
    assert 0.86 < np.mean((low <= y) & (y <= high)) < 0.97


def interrupt(estimator, X, y, *, after: int) -> None:
    """A fit with Ctrl-C after so many epochs."""
    epochs = iter(range(after))

    def validate(*arguments):
        if next(epochs, None) is None:
            raise KeyboardInterrupt
        return original(*arguments)

    original = loop.validate
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "validate", validate)
        estimator.fit(X, y)


SHORT = LINE | {"steps": 300}


@pytest.mark.parametrize("seed", [0, None])
def test_an_interrupted_fit_resumes(tmp_path, seed):
    X, y = waves(60)
    folder = tmp_path / "partial"
    settings = SHORT | {"random_state": seed}
    interrupt(DEGPRegressor(**settings, checkpoint=str(folder)), X, y, after=10)
    assert folder.exists()
    resumed = DEGPRegressor(**settings, checkpoint=str(folder)).fit(X, y)
    assert not folder.exists()  # it is done
    np.testing.assert_array_equal(resumed.predict(X), DEGPRegressor(**SHORT).fit(X, y).predict(X))


@pytest.mark.parametrize("after", [2, 5])
def test_a_fit_resumes_before_and_within_the_last_steps_on_all_rows(tmp_path, after):
    X, y = waves(60)
    settings = LINE | {"steps": 100, "validation_fraction": 0.2}  # four epochs, and one on all rows
    interrupt(DEGPRegressor(**settings | {"steps": 100}, checkpoint=str(tmp_path / "partial")), X, y, after=after - 1)
    resumed = DEGPRegressor(**settings, checkpoint=str(tmp_path / "partial")).fit(X, y)
    whole = DEGPRegressor(**settings).fit(X, y)
    assert len(whole.history_) == 5 and not (tmp_path / "partial").exists()
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    np.testing.assert_array_equal(resumed.conformity_, whole.conformity_)


def test_a_fit_with_other_rows_or_settings_is_not_resumed(tmp_path):
    X, y = waves(60)
    saving = SHORT | {"checkpoint": str(tmp_path)}
    interrupt(DEGPRegressor(**saving), X, y, after=3)
    with pytest.raises(CheckpointError, match=r"of another run, whose rows is .*; choose another folder"):
        DEGPRegressor(**saving).fit(X, -y)
    with pytest.raises(CheckpointError, match=r"of another run, whose rows is"):
        DEGPRegressor(**saving).fit(X, y, sample_weight=np.arange(1.0, 61))
    with pytest.raises(CheckpointError, match=r"whose learning_rate is 0.01 and this one's 0.02"):
        DEGPRegressor(**saving, learning_rate=0.02).fit(X, y)


def test_one_checkpoint_folder_serves_all_folds(tmp_path):
    X, y = waves(60)
    other = tmp_path / "of the user"
    other.touch()
    scores, plain = (
        cross_val_score(DEGPRegressor(**TINY | options), X, y, cv=3) for options in ({"checkpoint": str(tmp_path)}, {})
    )
    np.testing.assert_array_equal(scores, plain)
    assert [path.name for path in tmp_path.iterdir()] == [other.name]


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"method": "bayes"}, "a method must be one of de, rde, rms, degp, but it is 'bayes'"),
        ({"members": 1}, "members must be at least 2, but it is 1"),
        ({"alpha": -1.0}, "alpha must not be negative, but it is -1.0"),
        ({"validation_fraction": 1.5}, "validation_fraction must be at least 0 and less than 1, but it is 1.5"),
        ({"noise": "loud"}, "noise must be 'constant' or 'input-dependent'"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        DEGPRegressor(**LINE | settings).fit(*waves(30))


def test_bad_data_is_named():
    X, y = waves(30)
    with pytest.raises(ValueError, match="infinity"):
        DEGPRegressor(**LINE).fit(np.where(X > 0, np.inf, X), y)
    with pytest.raises(ValueError, match="all targets are one class: a"):
        DEGPClassifier(**LINE).fit(X, ["a"] * 30)
    with pytest.raises(ValueError, match=r"level is a probability between 0 and 1, but it is 90\.0"):
        DEGPRegressor(**LINE).fit(X, y).predict_interval(X, 90.0)


def test_scales_are_those_of_the_training_rows():
    """Validation rows must not take part in standardisation."""
    X, y = waves(40)
    held = TINY | {"validation_fraction": 0.15}
    model = DEGPRegressor(**held).fit(X, y)
    X[:, 0] = np.arange(40.0)
    again = DEGPRegressor(**held).fit(X, y)
    held_out = round(0.15 * 40)
    sums = 40 * X[:, 0].mean() - (40 - held_out) * again.input_scaling_.mean[0]  # of the rows that were held out
    assert model.input_scaling_.mean != again.input_scaling_.mean
    assert abs(sums - round(sums)) < 1e-9 and sums != pytest.approx(held_out * X[:, 0].mean())


def test_an_update_leaves_the_noise_of_the_input_alone():
    X, y = waves(60)
    model = DEGPRegressor(**LINE | {"noise": "input-dependent", "steps": 20}).fit(X, y)
    before = model.uncertainty(X)
    model.update(X[:20], y[:20] + 5)
    np.testing.assert_allclose(model.uncertainty(X).aleatoric, before.aleatoric)
    assert not np.allclose(model.uncertainty(X).epistemic, before.epistemic)


@pytest.mark.parametrize("fails", [False, True])
def test_a_fit_leaves_the_number_of_threads_as_it_was(monkeypatch, fails):
    X, y = waves(30)
    seen, before = [], torch.get_num_threads()

    def validate(*parts):
        seen.append(torch.get_num_threads())
        if fails:
            raise KeyError
        return {}

    monkeypatch.setattr(loop, "validate", validate)
    monkeypatch.setattr("degp.runtime.cpu.SHORT", 60.0)  # also on a busy machine a step of a small table is short
    torch.set_num_threads(3)
    try:
        with pytest.raises(KeyError) if fails else contextlib.nullcontext():
            DEGPRegressor(**TINY | {"steps": 1}).fit(X, y)
        assert torch.get_num_threads() == 3
        assert seen[0] == 1  # a small table
    finally:
        torch.set_num_threads(before)


def test_fits_in_several_threads_are_those_of_one():
    X, y = waves(40)
    alone = DEGPRegressor(**TINY).fit(X, y).predict(X)
    before = torch.get_num_threads()
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda _: DEGPRegressor(**TINY).fit(X, y).predict(X), range(3)))
    for predicted in together:
        np.testing.assert_allclose(predicted, alone, rtol=1e-6)
    assert torch.get_num_threads() == before


def test_a_log_that_raises_the_crps_is_not_taken():
    """On these patients its leave-one-out NLL is lower beyond noise, and its CRPS higher."""
    X, y = load_diabetes(return_X_y=True)
    rows = np.random.RandomState(1).permutation(len(y))[:354]
    assert DEGPRegressor(**TINY | {"random_state": 1}).fit(X[rows], y[rows]).target_transform_ == Identity()
