"""`degp fit` and `degp update`: what they report and save, and which tables they reject."""

import inspect

import numpy as np
import pytest

from degp.cli import fitting
from degp.tabular import read_table
from degp.tabular.estimators import DEGPRegressor
from degp.tabular.model import predict_rows
from degp.tabular.saving import load_model
from tests.cli.commands import QUICK, assert_rejected, houses, names, run


def test_defaults_are_those_of_the_estimators():
    command, estimator = (inspect.signature(f).parameters for f in (fitting.fit, DEGPRegressor))
    for name in ("method", "members", "max_seconds", "max_epochs", "device", "noise"):
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
        "validation NLL",
        "Saved: ",
    ):
        assert phrase in done.stdout
    assert f"degp predict {tmp_path / 'model'}" in done.stdout
    assert names(tmp_path) == ["model"]


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
