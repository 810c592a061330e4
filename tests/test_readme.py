"""The README tells the truth: its examples print what it shows; `test_results_pages.py` compares its numbers."""

import contextlib
import io
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import torch

import degp
from experiments.pages import peers

PROJECT = Path(__file__).parents[1]
TEXT = (PROJECT / "README.md").read_text(encoding="utf-8")

EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
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


@pytest.mark.parametrize("seed", [0, 1])
def test_errors_of_the_network_on_its_training_points_are_too_small(seed):
    assert "errors on training points are too small" in TEXT
    names = run(seed)[ATTACHED][1]
    error = (names["network"](names["x"]) - names["y"]).square().detach()
    assert error[:400].mean() < 0.8 * error[600:].mean()


def test_error_bars_of_exact_inference_and_of_a_deep_ensemble_are_those_stated():
    statement = re.search(r"Exact inference gives ([\d. and]+), a deep ensemble \(`methods.de`\)\s([\d. and]+)\.", TEXT)
    data, points = degp.data.sine(), torch.tensor([[0.0], [3.0]])
    exact = degp.priors.ExactGP.fit(degp.priors.NNGP(depth=2), data.inputs, data.targets, noise_variance=0.04)
    assert exact.variance(points).sqrt().tolist() == pytest.approx(numbers(statement[1]), abs=0.006)
    method = degp.methods.de(degp.Gaussian(variance=0.04))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ensemble = degp.Ensemble(lambda: degp.nets.mlp(1, [64, 64], 1), 20)
        degp.fit(ensemble, data, method, epochs=200)
    std = degp.predict(ensemble, points, method).epistemic.sqrt().flatten()
    assert std.tolist() == pytest.approx(numbers(statement[2]), rel=0.15, abs=0.01)


def test_gradient_boosting_is_as_quick_as_said():
    assert "gradient boosting fits tables in under a second" in TEXT
    assert float(peers.fit_seconds("HGB")) < 1


def test_badges_state_the_requirements_and_the_licence():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    torch_range = next(need for need in project["dependencies"] if need.startswith("torch"))
    facts = {
        "python": project["requires-python"].removeprefix(">="),
        "torch": torch_range.removeprefix("torch>="),
        "licence": project["license"],
    }
    for name, fact in facts.items():
        badge = (PROJECT / "docs" / "_static" / "badges" / f"{name}.svg").read_text(encoding="utf-8")
        assert f"{fact}</text>" in badge and f"{fact}](docs/_static/badges/{name}.svg)" in TEXT
    assert (PROJECT / "src" / "degp" / "py.typed").exists() and "badges/typed.svg" in TEXT


def test_readme_is_short_and_has_what_a_newcomer_needs():
    assert len(TEXT.split()) < 700  # code, output and BibTeX included, as `wc -w` counts
    assert "pip install torch --index-url" in TEXT and "make demo" in TEXT and "make test" in TEXT
    rivals = ("deep ensemble", "MC dropout", "laplace-torch", "scikit-learn GP", "MAPIE", "NGBoost")
    assert all(name in TEXT for name in rivals)
    citation = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    authors = re.findall(r"given-names: (\w+)\n\s+family-names: (\w+)", citation)
    assert " and ".join(f"{family}, {given}" for given, family in authors) in TEXT
