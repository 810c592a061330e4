"""`degp evaluate` and `degp report`: metrics, a verdict, and a page for every method."""

import json

import pytest

from tests.cli.commands import QUICK, assert_rejected, houses, run


@pytest.mark.parametrize("model, metric", [("numbers", "RMSE"), ("classes", "Accuracy")])
def test_evaluate_prints_metrics_and_a_verdict(model, metric, place):
    done = run("evaluate", place / model, place / "test.csv", "--resamples", "5")
    assert done.exit_code == 0, done.output
    assert metric in done.stdout
    assert "of 40 test rows" in done.stdout


@pytest.mark.parametrize("model, linear", [("numbers", "Linear regression"), ("classes", "Logistic regression")])
def test_report_compares_with_baselines_if_they_can_be_trained(model, linear, place, tmp_path):
    train = ["--train", place / "train.csv"]
    pages = []
    for rest in ([], train, [*train, "--deep-ensemble"]):
        page = tmp_path / "page.html"
        done = run("report", place / model, place / "test.csv", "--out", page, "--resamples", "5", *rest)
        assert done.exit_code == 0, done.output
        pages.append(page.read_text())
    alone, compared, deep = pages
    assert "--train TABLE" in alone and 'class="theirs"' not in alone
    assert 'class="theirs">Gradient boosting' in compared and linear in compared and "Deep ensemble" not in compared
    assert 'class="theirs">Deep ensemble' in deep and linear in deep


def test_evaluate_shows_baselines_and_classes(place):
    words = ["evaluate", place / "classes", place / "test.csv", "--resamples", "5", "--train", place / "train.csv"]
    done = run(*words)
    for phrase in ("Gradient", "Logistic", "ROC-AUC ↑", "recall", "precision"):
        assert phrase in done.stdout
    baselines = json.loads(run(*words, "--json").stdout)["baselines"]
    assert set(baselines) == {"Gradient boosting", "Logistic regression"}


def test_the_page_names_the_method(place, tmp_path):
    run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "de", *QUICK, "--method", "de")
    assert run("evaluate", tmp_path / "de", place / "test.csv", "--resamples", "5").exit_code == 0
    page = tmp_path / "r.html"
    assert run("report", tmp_path / "de", place / "test.csv", "--out", page, "--resamples", "5").exit_code == 0
    assert "DE, 3 networks" in page.read_text() and "DE-GP" not in page.read_text()


def test_unseen_labels_are_rejected(place, tmp_path):
    houses(9, 3).assign(sold="maybe").to_csv(tmp_path / "new.csv", index=False)
    assert_rejected(run("evaluate", place / "classes", tmp_path / "new.csv"), "one of the 2 labels", "'maybe'")
