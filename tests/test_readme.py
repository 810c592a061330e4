"""The README tells the truth: its examples print what it shows, and its claims and numbers are those of the records."""

import contextlib
import io
import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch

import degp

PROJECT = Path(__file__).parents[1]
TEXT = (PROJECT / "README.md").read_text(encoding="utf-8")
RESULTS = PROJECT / "experiments" / "results"

EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SEED = re.compile(r"(?<=manual_seed\()0(?=\))|(?<=fast\", random_state=)0")
TABLE, ATTACHED, OWN = range(3)
IN_THE_RECORDS = {"scikit-learn GP": "GP", "deep ensemble": "DE", "laplace-torch": "Laplace"}


@cache
def run(seed: int) -> list[tuple[str, dict]]:
    """What each example prints, and the names that it leaves; all in one namespace, as a reader would run them."""
    names, done = {"__name__": "__main__"}, []
    with torch.random.fork_rng(devices=[]):
        for code, _ in EXAMPLE.findall(TEXT):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(SEED.sub(str(seed), code), "README.md", "exec"), names)
            done.append((printed.getvalue(), dict(names)))
    return done


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def rows_of(text: str) -> list[list[str]]:
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines]


def section(text: str, title: str) -> str:
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)[1]


def test_every_example_shows_what_it_prints():
    assert len(EXAMPLE.findall(TEXT)) == TEXT.count("```python") == 3
    assert len(SEED.findall(TEXT)) == 3  # a seed for each


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("example", [TABLE, ATTACHED, OWN])
def test_examples_print_what_is_shown(example, seed):
    """The same words; numbers, which versions of torch and seeds change, within a tenth or a hundredth."""
    shown, printed = EXAMPLE.findall(TEXT)[example][1], run(seed)[example][0]
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    assert numbers(printed) == pytest.approx(numbers(shown), rel=0.1, abs=0.011)


@pytest.mark.parametrize("seed", [0, 1])
def test_coverage_of_the_table_is_within_chance(seed):
    assert "84 to 96 % is within chance" in TEXT  # 0.9 ± 2 √(0.9 · 0.1 / 111)
    assert 0.84 <= run(seed)[TABLE][1]["inside"] <= 0.96


def test_attaching_with_the_training_points_gives_short_intervals():
    assert "with its 400 training points, intervals contain under 85 %" in TEXT
    names = run(0)[ATTACHED][1]
    options = {"members": 20, "steps": 200, "generator": torch.Generator().manual_seed(0)}
    prediction = degp.attach(names["network"], degp.Batch(names["x"], names["y"]), **options).predict(names["x_new"])
    assert degp.metrics.coverage(prediction.mean, prediction.total, names["y_new"], level=0.9) < 0.85


@pytest.mark.parametrize("seed", [0, 1])
def test_error_bars_are_near_exact_inference_and_those_of_the_deep_ensemble_are_not(seed):
    names = run(seed)[OWN][1]
    assert "within 25 % of exact inference" in TEXT and "over five times too short" in TEXT
    assert (names["process"] / names["exact"] - 1).abs().max() < 0.25
    assert 5 * names["ensemble"][0] < names["exact"][0]


def test_ranks_are_those_of_the_records():
    summary = (RESULTS / "peers" / "summary.md").read_text(encoding="utf-8")
    records = section(summary, "Regression, random splits")
    ranked = [row for row in rows_of(records) if len(row) == 7][2:]
    rank, seconds = ({row[0]: float(row[k]) for row in ranked} for k in (1, 5))
    assert len(ranked) == 11 and "Mean ranks over 17 tables" in records and "more than 3.66" in records
    rows = rows_of(section(TEXT, "Compared with what you use now"))[1:]
    assert [row[0] for row in rows] == ["DE-GP", "scikit-learn GP", "deep ensemble", "NGBoost", "laplace-torch"]
    for method, *shown, ahead in rows:
        name = IN_THE_RECORDS.get(method, method)
        assert [float(number) for number in shown] == [rank[name], seconds[name]]
        for data_set in re.findall(r"(?:^|; )([\w-]+)", ahead):
            assert any(row[0] == data_set and row[-1] == name for row in rows_of(summary)), (data_set, name)
    assert rank["DE"] - rank["DE-GP"] < 3.66 and rank["GP"] - rank["DE-GP"] < 3.66  # "no proven lead"
    assert seconds["HGB"] < 1  # "gradient boosting fits tables in under a second"


def test_scores_on_a_pretrained_network_are_those_of_the_records():
    summary = (RESULTS / "pretrained" / "summary.md").read_text(encoding="utf-8")
    paragraph = next(part for part in TEXT.split("\n\n") if part.startswith("On a pre-trained network"))
    shown = re.findall(r"0\.\d{3}", paragraph)
    recorded = []
    for labels in ("4,000 labels", "45,000 labels"):
        nll = {tuple(row[:3]): row[3].split()[0] for row in rows_of(section(summary, labels))}
        laplace = min(nll["Laplace full", "–", "–"], nll["Laplace KFAC", "–", "–"])
        recorded += [nll["DE-GP", "200", "1.0"], nll["DE", "200", "–"], laplace]
    assert shown == [f"{float(number):.3f}" for number in recorded]


def test_failed_extrapolation_is_that_of_the_records():
    records = json.loads((RESULTS / "peers" / "metrics.json").read_text(encoding="utf-8"))["records"]
    (coverage,) = [
        record["coverage90"]
        for record in records
        if (record["dataset"], record["kind"], record["method"]) == ("energy", "extrapolation", "DE-GP")
    ]
    assert f"on energy, 90 % intervals contain {100 * coverage:.0f} %" in TEXT


def test_readme_is_short_and_has_what_a_newcomer_needs():
    assert len(FENCED.sub("", TEXT).split()) < 700  # words outside code, output and BibTeX
    assert "pip install torch --index-url" in TEXT and "make demo" in TEXT and "make test" in TEXT
    citation = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    authors = re.findall(r"given-names: (\w+)\n\s+family-names: (\w+)", citation)
    assert " and ".join(f"{family}, {given}" for given, family in authors) in TEXT
