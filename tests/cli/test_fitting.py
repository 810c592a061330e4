"""`degp fit` and `degp update`: what they report and save, and which tables they reject."""

import inspect
import json

import numpy as np
import pytest

from degp.cli import fitting
from degp.sklearn import DEGPRegressor
from degp.tabular import read_table
from degp.tabular.model import predict_rows
from degp.tabular.saving import load_model
from degp.training import Ending
from tests.cli.commands import QUICK, assert_rejected, houses, names, notes, run


def test_defaults_are_those_of_the_estimators():
    command, estimator = (inspect.signature(f).parameters for f in (fitting.fit, DEGPRegressor))
    for name in ("preset", "method", "members", "max_seconds", "steps", "device", "noise"):
        assert command[name].default == estimator[name].default
    assert command["hidden"].default == ",".join(map(str, estimator["hidden_layers"].default))


def test_fit_reports_what_it_did_and_what_to_do_next(place, tmp_path):
    done = run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "model", *QUICK)
    for phrase in (
        "regression, because",
        "'id': left out",
        "'city': 3 categories, one-hot encoded",
        "of 60 missing, filled with the median",
        "α = ",
        "held-out NLL",
        "Target transform: identity.",
        "Saved: ",
    ):
        assert phrase in done.stdout
    assert f"degp predict {tmp_path / 'model'}" in done.stdout
    assert names(tmp_path) == ["model"]


def test_skewed_targets_from_fit_to_report(tmp_path):
    """Every number is in the target's own units, and every command says that its log was modelled."""
    frame = houses(120, 0)
    frame["price"] = np.exp(3 * frame["price"] / frame["price"].std())
    table, model = tmp_path / "t.csv", tmp_path / "m"
    frame.to_csv(table, index=False)
    done = run("fit", table, "--target", "price", "--out", model, *QUICK)
    assert "Target transform: log." in done.stdout
    assert run("report", model, table, "--out", tmp_path / "page.html").exit_code == 0
    assert "Target transform" in (tmp_path / "page.html").read_text()
    estimator, price = load_model(model).estimator, frame["price"].to_numpy()
    scores = json.loads(run("evaluate", model, table, "--json").stdout)["metrics"]
    mean, std = estimator.predict(frame, return_std=True)
    assert scores["rmse"]["value"] == pytest.approx(np.sqrt(np.mean((mean - price) ** 2)))
    low, high = estimator.predict_interval(frame, 0.9).T
    assert scores["coverage_90"]["value"] == pytest.approx(np.mean((low <= price) & (price <= high)))
    predicted = predict_rows(load_model(model), frame)
    np.testing.assert_allclose(predicted[["mean", "total_std", "lower", "upper"]].T, [mean, std, low, high])
    done = run("fit", table, "--target", "price", "--out", tmp_path / "n", *QUICK, "--json")
    assert json.loads(done.stdout)["target_transform"] == "log"


def test_the_task_can_be_chosen(place, tmp_path):
    done = run("fit", place / "train.csv", "--target", "age", "--task", "regression", "--out", tmp_path / "m", *QUICK)
    assert "because it was requested" in done.stdout
    assert load_model(tmp_path / "m").target.task == "regression"


def test_ratings_become_classes_with_a_hint(tmp_path):
    houses(120, 0).assign(stars=np.arange(120) % 5 + 1).to_csv(tmp_path / "t.csv", index=False)
    done = run("fit", tmp_path / "t.csv", "--target", "stars", "--out", tmp_path / "m", *QUICK)
    assert "Target 'stars': classification, because " in done.stdout
    assert "pass --task regression" in done.stdout


def test_quiet_prints_nothing(place, tmp_path):
    done = run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "m", *QUICK, "--quiet")
    assert done.output == ""


GOOD = houses(12, 0)
BAD_TABLES = {
    "no such column": (GOOD.drop(columns="price"), "must have the columns 'price'"),
    "no target at all": (GOOD.assign(price=np.nan), "all 12 of its cells are missing"),
    "one target": (GOOD.assign(price=[1.5, *[np.nan] * 11]), "at least two rows"),
    "one value": (GOOD.assign(price=3.25), "must vary"),
    "one row": (GOOD[:1], "at least two rows"),
    "no rows": (GOOD[:0], "at least one row"),
    "infinite target": (GOOD.assign(price=[np.inf, *range(11)]), "finite numbers"),
    "nothing to learn from": (GOOD[["price"]], "a column to learn from"),
    "only identifiers": (GOOD[["id", "price"]], "a column to learn from"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_fit_rejects_tables_that_it_cannot_learn_from(name, tmp_path):
    frame, phrase = BAD_TABLES[name]
    frame.to_csv(tmp_path / "bad.csv", index=False)
    assert_rejected(run("fit", tmp_path / "bad.csv", "--target", "price", "--out", tmp_path / "model", *QUICK), phrase)
    assert names(tmp_path) == ["bad.csv"]


def test_update_conditions_a_copy_of_the_model(place, tmp_path):
    before = (place / "numbers" / "model.json").read_text()
    done = run("update", place / "numbers", place / "test.csv", "--out", tmp_path / "new")
    assert "Conditioned on 40 new labels" in done.stdout
    assert (place / "numbers" / "model.json").read_text() == before
    old, new = (load_model(folder) for folder in (place / "numbers", tmp_path / "new"))
    frame = read_table(place / "test.csv")
    assert (predict_rows(new, frame)["epistemic_std"] < predict_rows(old, frame)["epistemic_std"]).all()
    run("update", tmp_path / "new", place / "test.csv")
    assert load_model(tmp_path / "new").metadata["metrics"]["updated_rows"] == 80


def test_under_torchrun_only_the_first_rank_updates(place, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        done = run("update", place / "numbers", place / "test.csv", "--out", tmp_path / "updated")
        assert done.exit_code == 0, done.output
        assert (tmp_path / "updated").exists() == bool(done.output) == (rank == "0")


def test_models_of_classes_cannot_be_updated(place):
    assert_rejected(run("update", place / "classes", place / "test.csv"), "only models of numbers")


def test_a_fit_that_was_cut_off_says_so_everywhere(place, tmp_path):
    model = tmp_path / "m"
    command = ["fit", place / "train.csv", "--target", "price", "--out", model, *QUICK, "--max-seconds", "0.001"]
    assert "Cut off by --max-seconds 0.001, at step 1 of 100" in run(*command).stdout
    assert load_model(model).metadata["metrics"]["ending"] == "time"
    assert load_model(model).estimator.ending_ == Ending.TIME
    assert "Training was cut off" in run("evaluate", model, place / "test.csv", "--resamples", "5").stdout
    page = tmp_path / "r.html"
    run("report", model, place / "test.csv", "--out", page, "--resamples", "5")
    assert "Training was cut off" in page.read_text() and "cut off by its time limit" in page.read_text()


def test_a_fit_that_had_its_time_does_not(place, tmp_path):
    done = run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "m", *QUICK, "--max-seconds", "99")
    assert "Cut off" not in done.stdout
    assert load_model(tmp_path / "m").estimator.ending_ == Ending.COMPLETE


def test_columns_can_be_dropped(place, tmp_path):
    command = ["fit", place / "train.csv", "--target", "price", "--out", tmp_path / "m", *QUICK]
    done = run(*command, "--drop", "sold", "--drop", "age")
    assert "'sold': left out, as requested" in done.stdout
    assert load_model(tmp_path / "m").preprocessing.names == ("size", "city")
    done = run("predict", tmp_path / "m", place / "test.csv", "--out", tmp_path / "p.csv")
    assert done.exit_code == 0 and not notes(done)


def test_a_table_without_a_header(tmp_path):
    table = houses(60, 1)[["price", "size", "age"]]
    table.to_csv(tmp_path / "t.csv", index=False, header=False)
    command = ["fit", tmp_path / "t.csv", "--target", "1", "--out", tmp_path / "m", *QUICK]
    assert_rejected(run(*command), "add a header line, or fit with --header none")
    assert run(*command, "--header", "none").exit_code == 0
    assert load_model(tmp_path / "m").preprocessing.names == ("2", "3")
    table[["size", "age"]].to_csv(tmp_path / "new.csv", index=False, header=False)
    predictions = []
    for name in ("t", "new"):
        assert run("predict", tmp_path / "m", tmp_path / f"{name}.csv", "--out", tmp_path / "p.csv").exit_code == 0
        predictions.append((tmp_path / "p.csv").read_text())
    assert predictions[0] == predictions[1]


def test_several_targets_from_fit_to_report(tmp_path):
    for name, rows in (("train", 60), ("test", 40)):
        houses(rows, rows).assign(rent=lambda frame: frame["price"] / 200).to_csv(tmp_path / f"{name}.csv", index=False)
    train, test, model = tmp_path / "train.csv", tmp_path / "test.csv", tmp_path / "m"
    done = run("fit", train, "--target", "price", "--target", "rent", "--out", model, *QUICK)
    assert "'price': regression, because" in done.stdout and "'rent': regression, because" in done.stdout
    assert run("predict", model, test, "--out", tmp_path / "p.csv").exit_code == 0
    assert {"price_mean", "price_upper", "rent_mean", "rent_upper"} <= set(read_table(tmp_path / "p.csv"))
    shown = run("evaluate", model, test, "--train", train, "--resamples", "5", "--json")
    assert set(json.loads(shown.stdout)["targets"]) == {"price", "rent"}
    done = run("report", model, test, "--out", tmp_path / "r.html", "--resamples", "5")
    assert done.exit_code == 0, done.output
    assert {"r-price.html", "r-rent.html"} <= set(names(tmp_path))
    assert run("update", model, test).exit_code == 0
