"""`degp evaluate` and `degp report`: metrics, a verdict, and a page for every method."""

import pytest

from tests.cli.commands import QUICK, assert_rejected, houses, run


@pytest.mark.parametrize("model, metric", [("numbers", "RMSE"), ("classes", "Accuracy")])
def test_evaluate_prints_metrics_and_a_verdict(model, metric, place):
    done = run("evaluate", place / model, place / "test.csv", "--resamples", "5")
    assert done.exit_code == 0, done.output
    assert metric in done.stdout
    assert "of 40 test rows" in done.stdout


@pytest.mark.parametrize("model", ["numbers", "classes"])
def test_report_compares_with_a_plain_ensemble_if_it_can_be_trained(model, place, tmp_path):
    pages = [tmp_path / "alone.html", tmp_path / "compared.html"]
    for page, rest in zip(pages, ([], ["--train", place / "train.csv"]), strict=True):
        done = run("report", place / model, place / "test.csv", "--out", page, "--resamples", "5", *rest)
        assert done.exit_code == 0, done.output
    alone, compared = (page.read_text() for page in pages)
    assert "--train TABLE" in alone
    assert 'class="theirs"' not in alone
    assert 'class="theirs"' in compared


def test_the_page_names_the_method(place, tmp_path):
    run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "de", *QUICK, "--method", "de")
    assert run("evaluate", tmp_path / "de", place / "test.csv", "--resamples", "5").exit_code == 0
    page = tmp_path / "r.html"
    assert run("report", tmp_path / "de", place / "test.csv", "--out", page, "--resamples", "5").exit_code == 0
    assert "DE, 3 networks" in page.read_text() and "DE-GP" not in page.read_text()


def test_unseen_labels_are_rejected(place, tmp_path):
    houses(9, 3).assign(sold="maybe").to_csv(tmp_path / "new.csv", index=False)
    assert_rejected(run("evaluate", place / "classes", tmp_path / "new.csv"), "one of the 2 labels", "'maybe'")
