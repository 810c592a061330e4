"""The comparison with peers: scores, splits, ranks, workers, and a command that resumes and survives failures."""

import json
import math
import os
import time
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from degp.report import load_results
from degp.sklearn import DEGPRegressor
from degp.transforms import Log
from experiments import __main__ as experiments
from experiments import peers
from experiments.data.tables import Table
from experiments.protocols.deadline import Deadline
from experiments.protocols.peers.cells import EXTRAPOLATION, IID, SCORES, Cell, scores, split_rows
from experiments.protocols.peers.conformal import around_mean, conformal_quantile, held_out
from experiments.protocols.peers.contract import Interval, Normal, Probabilities, Task, Transformed
from experiments.protocols.peers.encoding import one_hot, with_missing_category
from experiments.protocols.peers.own import own
from experiments.protocols.peers.ranks import Ranking, critical_difference, difference_diagram, indistinguishable, rank
from experiments.protocols.peers.registry import METHODS, OWN, missing_modules
from experiments.protocols.peers.summary import GROUPS, barely_begun, behind, compared, complete
from experiments.protocols.peers.workers import Failure, finished

KEYS = {"dataset", "kind", "split", "method", "fit_seconds", "predict_seconds", *SCORES}


@pytest.fixture(autouse=True)
def known_commit(monkeypatch):
    """No call of git per record."""
    monkeypatch.setenv("DEGP_COMMIT", "of the test")


def run(out, *options):
    result = CliRunner().invoke(experiments.app, ["peers", "--smoke", "--workers", "1", "--out", str(out), *options])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


def small_table(rows=80, num_classes=None, seed=0):
    """Numbers, categories and missing cells of both."""
    random = np.random.RandomState(seed)
    frame = pd.DataFrame({"a": random.randn(rows), "b": random.randn(rows)})
    frame["c"] = pd.Categorical(random.choice(["u", "v", "w"], rows))
    level = frame["a"] + 2 * (frame["c"] == "u") + 0.1 * random.randn(rows)
    frame.loc[::9, "b"] = np.nan
    frame.loc[::11, "c"] = np.nan
    target = level.to_numpy() if num_classes is None else pd.qcut(level, num_classes, labels=False).to_numpy(np.int64)
    return Table("small", frame, target, num_classes)


def test_scores_of_a_gaussian_are_the_closed_forms():
    found = scores(Normal(np.zeros(2), np.ones(2)), np.array([0.0, 2.0]))
    assert found["rmse"] == pytest.approx(math.sqrt(2))
    assert found["nll"] == pytest.approx(0.5 * math.log(2 * math.pi) + 1)
    density, mass = math.exp(-2) / math.sqrt(2 * math.pi), math.erf(math.sqrt(2))
    at_zero, at_two = (
        2 / math.sqrt(2 * math.pi) - 1 / math.sqrt(math.pi),
        2 * mass + 2 * density - 1 / math.sqrt(math.pi),
    )
    assert found["crps"] == pytest.approx((at_zero + at_two) / 2)
    assert found["coverage90"] == 0.5 and found["width90"] == pytest.approx(2 * 1.6448536, rel=1e-6)
    assert found["accuracy"] is found["ece"] is found["auroc_errors"] is None


def test_an_interval_is_scored_as_the_gaussian_that_it_implies():
    mean, std, truth = np.array([1.0, 5.0]), np.array([2.0, 0.5]), np.array([0.0, 9.0])
    half = 1.6448536269514722 * std
    found = scores(Interval(mean + 1, mean - half, mean + half, 0.0), truth)
    gaussian = scores(Normal(mean, std), truth)
    for score in ("nll", "crps", "coverage90", "width90"):
        assert found[score] == pytest.approx(gaussian[score], rel=1e-9)
    assert found["rmse"] == pytest.approx(math.sqrt(((2 - 0) ** 2 + (6 - 9) ** 2) / 2))


def test_coinciding_ends_have_the_smallest_standard_deviation():
    found = scores(Interval(np.ones(1), np.ones(1), np.ones(1), 0.1), np.ones(1))
    assert found["nll"] == pytest.approx(0.5 * math.log(2 * math.pi) + math.log(0.1))
    assert found["width90"] == 0 and found["coverage90"] == 1


def test_a_distribution_of_the_log_is_scored_as_scipys_log_normal():
    random = np.random.default_rng(0)
    location, scale = random.normal(size=50), random.uniform(0.2, 0.6, 50)
    law = stats.lognorm(s=scale, scale=np.exp(location))
    truth = law.rvs(random_state=1)
    found = scores(Transformed(law.mean(), location, scale, Log()), truth)
    low, high = law.interval(0.9)
    assert found["nll"] == pytest.approx(-law.logpdf(truth).mean())
    assert found["coverage90"] == np.mean((low <= truth) & (truth <= high))
    assert found["width90"] == pytest.approx(np.mean(high - low))
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((law.mean() - truth) ** 2)))


def test_our_estimator_is_scored_by_its_own_distribution():
    random = np.random.default_rng(0)
    features = pd.DataFrame(random.normal(size=(60, 2)), columns=["a", "b"])
    targets = np.exp(features["a"].to_numpy() + 0.3 * random.standard_normal(60))
    prediction = own(features, targets, Task((), None, steps=20), method="degp")(features)
    assert isinstance(prediction, Transformed) and prediction.transform == Log()
    model = DEGPRegressor(steps=20, random_state=0).fit(features, targets)
    low, high = model.predict_interval(features, 0.5).T
    law = stats.lognorm(s=prediction.scale, scale=np.exp(prediction.location))
    np.testing.assert_allclose(np.stack(law.interval(0.5)), [low, high], rtol=1e-6)
    np.testing.assert_array_equal(prediction.mean, model.predict(features))


def test_scores_of_classes():
    probabilities = Probabilities(np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6], [0.4, 0.6]]))
    found = scores(probabilities, np.array([0, 0, 1, 0]))
    assert found["accuracy"] == 0.75
    assert found["nll"] == pytest.approx(-(2 * math.log(0.8) + math.log(0.6) + math.log(0.4)) / 4)
    assert found["ece"] == pytest.approx(0.5 * abs(1 - 0.8) + 0.5 * abs(0.5 - 0.6))
    assert found["auroc_errors"] == pytest.approx((2 + 0.5) / 3)  # two right ones are more certain, one is level
    assert found["rmse"] is found["width90"] is None


def test_one_impossible_class_does_not_make_the_nll_infinite_and_no_errors_have_no_auroc():
    assert scores(Probabilities(np.array([[1.0, 0.0]])), np.array([1]))["nll"] == pytest.approx(math.log(1e6), rel=1e-4)
    assert scores(Probabilities(np.array([[1.0, 0.0]])), np.array([0]))["auroc_errors"] is None


def test_random_splits_are_the_stated_permutation():
    data = small_table(50)
    train, test = split_rows(data, IID, 7)
    assert np.array_equal(np.concatenate([train, test]), np.random.RandomState(7).permutation(50))
    assert (len(train), len(test)) == (40, 10)


def test_extrapolation_tests_on_the_rows_farthest_from_the_mean():
    data = small_table(50)
    train, test = split_rows(data, EXTRAPOLATION, 0)
    numbers = data.features[["a", "b"]]
    distance = ((numbers - numbers.mean()) / numbers.std(ddof=0)).fillna(0).pow(2).sum(axis=1).to_numpy()
    assert distance[train].max() <= distance[test].min()
    assert sorted([*train, *test]) == list(range(50)) and len(test) == 10


def test_the_conformal_quantile_is_an_order_statistic():
    assert conformal_quantile(np.arange(1.0, 20.0), 0.9) == 18  # ⌈20 · 0.9⌉
    assert conformal_quantile(np.array([3.0, 1.0]), 0.9) == 3  # too few rows for the level: the largest


def test_conformal_intervals_cover():
    random = np.random.RandomState(0)
    hits = [
        abs(random.standard_t(2)) <= around_mean(np.zeros(1), random.standard_t(2, 99), 0.0).high[0]
        for _ in range(4000)
    ]
    assert np.mean(hits) == pytest.approx(0.9, abs=0.02)


def test_a_method_is_ranked_where_half_of_its_runs_are_done():
    def ran(method, dataset, *splits):
        return [{"dataset": dataset, "kind": "iid", "split": split, "method": method} for split in splits]

    records = ran("HGB", "boston", 0, 1, 2) + ran("HGB", "iris", 0, 1, 2) + ran("GP", "boston", 0, 1, 2)
    records += ran("TabM", "boston", 0) + ran("TabM", "iris", 0, 1)
    assert barely_begun(records) == {"regression": ["TabM"], "extrapolation": [], "classification": []}
    ranked, _ = compared(records, [])
    assert {(r["method"], r["dataset"], r["split"]) for r in ranked} == {
        *((method, "boston", split) for method in ("GP", "HGB") for split in range(3)),
        *((method, "iris", split) for method in ("TabM", "HGB") for split in range(2)),
    }


def test_held_out_rows_are_disjoint_and_complete():
    train, rest = held_out(10, 0.15, 3)
    assert len(rest) == 2 and sorted([*train, *rest]) == list(range(10))
    assert len(held_out(2, 0.01, 0)[1]) == 1


def test_one_hot_columns_are_finite_and_unseen_categories_are_zero():
    frame = small_table().features
    known = frame[frame["c"] != "w"]
    encoder = one_hot(known, ("c",))
    columns = encoder.transform(with_missing_category(frame, ("c",)))
    assert np.isfinite(columns).all()
    assert columns.shape[1] == 2 + 1 + 3  # two numbers, an indicator, and u, v, missing
    assert (columns[(frame["c"] == "w").to_numpy(), 3:] == 0).all()


@pytest.mark.parametrize("num_classes", [None, 3])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_is_installed_learns_a_table_with_categories_and_missing_cells(name, num_classes):
    fit = METHODS[name].fit_for(num_classes)
    if fit is None or missing_modules(METHODS[name]):
        pytest.skip("not for such targets, or not installed")
    data = small_table(200, num_classes)
    train, test = split_rows(data, IID, 0)
    predictor = fit(data.features.iloc[train], data.target[train], Task(data.categorical, num_classes, 0, 20))
    found = scores(predictor(data.features.iloc[test]), data.target[test])
    assert math.isfinite(found["nll"])
    if num_classes is None:
        assert found["rmse"] < np.std(data.target[test]) and found["width90"] > 0
    else:
        assert found["accuracy"] > 0.45


def test_critical_values_are_those_of_the_published_table():
    # Demšar (2006), table 5a: q of the Nemenyi test at 5 %
    for methods, q in {2: 1.960, 3: 2.343, 5: 2.728, 10: 3.164}.items():
        assert critical_difference(methods, 12) == pytest.approx(q * math.sqrt(methods * (methods + 1) / 72), abs=2e-3)


def test_ranks_share_ties_and_failures_come_last():
    ranking = rank({"a": {"x": 1.0, "y": 2.0}, "b": {"x": 1.0, "y": math.nan}, "c": {"x": 3.0, "y": 5.0, "z": 0.0}})
    assert ranking.tables == ["x", "y"]  # z was not run by all
    assert ranking.means == {"a": 1.25, "b": 2.25, "c": 2.5}


def test_groups_that_do_not_differ_are_maximal():
    ranking = Ranking({"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0}, ["t"], None, 1.0)
    assert indistinguishable(ranking) == [("a", "b"), ("b", "c")]
    figure = difference_diagram(ranking, dict.fromkeys("abcd", "black"), "ranks")
    assert {"a 1.00", "d 4.00"} <= {text.get_text() for text in figure.axes[0].texts}


def test_a_method_is_behind_where_the_best_is_ahead_in_every_split():
    values = {("x", "DE-GP"): (2, 3), ("x", "GP"): (1, 2), ("y", "DE-GP"): (2, 3), ("y", "GP"): (1, 3.5)}
    records = [
        {"dataset": name, "kind": IID, "split": split, "method": method, "nll": value}
        for (name, method), own in values.items()
        for split, value in enumerate(own)
    ]
    assert behind(records, GROUPS[0], "nll") == [("x", "GP")]


def work(what):
    """A task of a worker process."""
    if what == "crash":
        os._exit(3)
    if what == "hang":
        time.sleep(600)
    if what == "raise":
        raise ValueError("two\nlines")
    return what, os.environ["OMP_NUM_THREADS"]


def test_failing_crashing_and_hanging_tasks_do_not_end_the_others():
    tasks = [("raise",), ("crash",), ("first",), ("hang",), ("last",)]
    before = dict(os.environ)
    outcomes = dict(finished(work, tasks, workers=1, deadline=Deadline(), limit_seconds=5))
    assert outcomes == {
        ("raise",): Failure("ValueError: two lines"),
        ("crash",): Failure("the process ended with exit code 3"),
        ("first",): ("first", "1"),
        ("hang",): Failure("took more than 5 s"),
        ("last",): ("last", "1"),
    }
    assert dict(os.environ) == before


def test_no_task_starts_after_the_deadline():
    assert list(finished(work, [("first",)], workers=2, deadline=Deadline(0), limit_seconds=9)) == []


def test_the_command_stores_cells_skips_them_later_and_reports_what_is_unavailable(tmp_path, monkeypatch):
    def missing(method):
        return ["lightgbm"] if method is METHODS["LightGBM"] else []

    monkeypatch.setattr(peers, "missing_modules", missing)
    output = run(tmp_path, "--methods", "HGB,LightGBM")
    assert "LightGBM is unavailable and left out: no module lightgbm; pip install lightgbm" in output
    before = load_results(tmp_path / "smoke")["records"]
    assert [(r["dataset"], r["kind"], r["method"]) for r in before] == [
        ("diabetes", "iid", "HGB"),
        ("diabetes", "extrapolation", "HGB"),
        ("iris", "iid", "HGB"),
    ]
    assert all(set(record) == KEYS | {"commit"} for record in before)
    output = run(tmp_path, "--methods", "HGB,logistic")
    assert "[1/1, 0 min left] iris" in output
    after = load_results(tmp_path / "smoke")["records"]
    assert [r for r in after if r["method"] == "HGB"] == before and len(after) == 4
    assert "[1/" not in run(tmp_path, "--methods", "HGB,logistic")
    assert {"summary.md", "tables.md", "versions.json", "ranks_classification_nll.png"} <= {
        path.name for path in (tmp_path / "smoke").iterdir()
    }


def test_no_cell_of_our_methods_fails(tmp_path):
    run(tmp_path, "--methods", ",".join(OWN))
    records = load_results(tmp_path / "smoke")["records"]
    assert not (tmp_path / "smoke" / "failures.json").exists()
    assert len(records) == 3 * len(OWN) and all(math.isfinite(record["nll"]) for record in records)


def test_failed_cells_are_recorded_and_not_repeated(tmp_path):
    output = run(tmp_path, "--methods", "logistic", "--datasets", "iris", "--cell-minutes", "0")
    assert "failed: took more than 0 s" in output
    failures = json.loads((tmp_path / "smoke" / "failures.json").read_text(encoding="utf-8"))
    assert failures == [asdict(Cell("iris", "iid", 0, "logistic")) | {"error": "took more than 0 s"}]
    output = run(tmp_path, "--methods", "logistic", "--datasets", "iris")
    assert "1 failed cells are not run again; delete" in output and "[1/" not in output


def test_without_an_installed_method_the_command_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "missing_modules", lambda method: ["some"])
    result = CliRunner().invoke(experiments.app, ["peers", "--out", str(tmp_path), "--methods", "TabM"])
    assert result.exit_code == 2
    assert "none of TabM is installed" in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options, message",
    [
        (["--datasets", "titanic"], "--datasets: there is no titanic; choose among boston"),
        (["--methods="], "--methods must have at least one of DE-GP"),
        (["--seeds", "a"], "--seeds must be integers such as 0,1,2"),
    ],
)
def test_an_invalid_option_is_refused_by_name(tmp_path, options, message):
    result = CliRunner().invoke(experiments.app, ["peers", "--out", str(tmp_path), *options])
    assert result.exit_code == 2 and message in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_the_remaining_time_goes_by_the_pace_so_far():
    left = [Cell("iris", IID, 0, "HGB"), Cell("iris", IID, 0, "TabM")]
    seconds = {"HGB": [1.0, 3.0], "GP": [6.0]}  # 10 s of CPU time in 5 s: two processes
    assert peers._remaining_minutes(left, seconds, 5.0) == pytest.approx((2 + 4) * 0.5 / 60)


def test_our_methods_have_the_colours_of_all_figures():
    from degp.report.figures import COLOURS

    assert {name: METHODS[name].colour for name in OWN} == {name: COLOURS[name] for name in OWN}
    assert len({method.colour for method in METHODS.values()}) == len(METHODS)


def test_splits_that_some_method_has_not_run_on_are_not_compared():
    cells = [("a", 0, "GP"), ("a", 0, "HGB"), ("a", 1, "GP"), ("b", 0, "GP"), ("b", 0, "HGB"), ("b", 1, "HGB")]
    records = [{"dataset": name, "kind": "iid", "split": split, "method": method} for name, split, method in cells]
    failed = [{"dataset": "b", "kind": "iid", "split": 1, "method": "GP"}]
    kept = [(r["dataset"], r["split"], r["method"]) for r in complete(records, failed)]
    assert kept == [("a", 0, "GP"), ("a", 0, "HGB"), ("b", 0, "GP"), ("b", 0, "HGB"), ("b", 1, "HGB")]


def test_a_method_without_extrapolation_leaves_that_of_the_others():
    cells = [("iid", "GP"), ("iid", "HGB"), ("iid", "TabM"), ("extrapolation", "GP"), ("extrapolation", "HGB")]
    records = [{"dataset": "a", "kind": kind, "split": 0, "method": method} for kind, method in cells]
    assert complete(records, []) == records
