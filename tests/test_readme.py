"""The README tells the truth: its examples print what it shows; `test_results_pages.py` compares its numbers."""

import contextlib
import io
import re
from functools import cache
from pathlib import Path

import pytest
import torch

import degp
from experiments.pages import peers

PROJECT = Path(__file__).parents[1]
TEXT = (PROJECT / "README.md").read_text(encoding="utf-8")

EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!--.*?-->")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SEED = re.compile(r"(?<=manual_seed\()0(?=\))|(?<=fast\", random_state=)0")
TABLE, ATTACHED, OWN = range(3)


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


def test_every_example_shows_what_it_prints():
    assert len(EXAMPLE.findall(TEXT)) == TEXT.count("```python") == 3
    assert len(SEED.findall(TEXT)) == 3  # a seed for each


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("example", [TABLE, ATTACHED, OWN])
def test_examples_print_what_is_shown(example, seed):
    """The same words; numbers, which versions of torch and seeds change, within 15 % or 0.025."""
    shown, printed = EXAMPLE.findall(TEXT)[example][1], run(seed)[example][0]
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    assert numbers(printed) == pytest.approx(numbers(shown), rel=0.15, abs=0.025)


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


def test_gradient_boosting_is_as_quick_as_said():
    assert "gradient boosting fits tables in under a second" in TEXT
    assert float(peers.fit_seconds("HGB")) < 1


def test_readme_is_short_and_has_what_a_newcomer_needs():
    prose = MARK.sub("", FENCED.sub("", TEXT))
    assert len(prose.split()) < 700  # words outside code, output and BibTeX
    assert "pip install torch --index-url" in TEXT and "make demo" in TEXT and "make test" in TEXT
    citation = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    authors = re.findall(r"given-names: (\w+)\n\s+family-names: (\w+)", citation)
    assert " and ".join(f"{family}, {given}" for given, family in authors) in TEXT
