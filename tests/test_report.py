"""The report says what is so: known truths get their verdict, intervals cover, and the page stands alone."""

import json
import re
import shutil
import subprocess
from html import escape

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch.testing import assert_close

from degp.report import evaluate_classification, evaluate_regression, render_page, save_results
from degp.report.chance import bootstrap, chance_range, count_distribution, rank_correlation
from degp.report.page import number
from degp.report.results import environment
from degp.report.verdict import bias_rule, confidence_rule, coverage_rule, detection_rule, groups_rule, ranking_rule

CHROMIUM = shutil.which("chromium")
NAMES = ["ash", "birch", "<cedar>"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal_case(N, scale=1.0, seed=0):
    """Targets around a wave with noise that grows, predicted with `scale` times the true standard deviation."""
    x = torch.rand(N, generator=seeded(seed), dtype=torch.float64)
    mean, std = 3 * torch.sin(6 * x), 0.2 + x
    targets = mean + std * torch.randn(N, generator=seeded(seed + 1), dtype=torch.float64)
    variance = (scale * std).square()
    return mean, 0.3 * variance, variance, targets


def class_case(N, sharpness=1.0, seed=0):
    """Labels drawn from a softmax, predicted with its logits times `sharpness`."""
    logits = 2 * torch.randn(N, 3, generator=seeded(seed), dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=seeded(seed + 1))[:, 0]
    probabilities = (sharpness * logits).softmax(-1)
    return probabilities, 0.2 * torch.special.entr(probabilities).sum(-1), labels, NAMES


def regression(N=400, scale=1.0, **options):
    return evaluate_regression(*normal_case(N, scale), **({"resamples": 60, "generator": seeded()} | options))


def classification(N=400, sharpness=1.0, **options):
    return evaluate_classification(*class_case(N, sharpness), **({"resamples": 60, "generator": seeded()} | options))


def grades(evaluation):
    return {reason["rule"]: reason["grade"] for reason in evaluation["verdict"]["reasons"]}


# Verdicts


@pytest.mark.parametrize(
    "N, scale, status, headline",
    [
        (400, 1.0, "trust", "Trust them"),
        (400, 0.6, "overconfident", "Too narrow"),
        (400, 1.8, "underconfident", "Too wide"),
        (12, 1.0, "cannot_tell", "Cannot tell"),
        (1, 1.0, "cannot_tell", "Cannot tell"),
    ],
)
def test_verdict_on_intervals(N, scale, status, headline):
    verdict = regression(N, scale)["verdict"]
    assert verdict["status"] == status
    assert verdict["text"].startswith(headline)
    assert f"{N} test row" in verdict["text"]


@pytest.mark.parametrize(
    "N, sharpness, status, headline",
    [
        (400, 1.0, "trust", "Trust them"),
        (400, 2.5, "overconfident", "Too sure"),
        (400, 0.4, "underconfident", "Not sure enough"),
        (12, 1.0, "cannot_tell", "Cannot tell"),
        (1, 1.0, "cannot_tell", "Cannot tell"),
    ],
)
def test_verdict_on_probabilities(N, sharpness, status, headline):
    verdict = classification(N, sharpness)["verdict"]
    assert verdict["status"] == status
    assert verdict["text"].startswith(headline)


def test_right_error_bars_raise_no_caution():
    assert set(grades(regression()).values()) == {"trust", "good"}
    assert set(grades(classification()).values()) == {"trust", "good"}


def test_error_bars_that_rank_rows_wrongly_are_cautioned():
    mean, epistemic, variance, targets = normal_case(400)
    backwards = variance.sort().values[variance.argsort(descending=True).argsort()]
    evaluation = evaluate_regression(mean, 0.3 * backwards, backwards, targets, resamples=60, generator=seeded())
    assert grades(evaluation)["ranking"] == "caution"
    assert grades(evaluation)["groups"] == "caution"


def test_equal_error_bars_say_nothing_about_rows():
    one = torch.ones(200, dtype=torch.float64)
    targets = torch.randn(200, generator=seeded(), dtype=torch.float64)
    evaluation = evaluate_regression(0 * one, 0 * one, one, targets, resamples=20, generator=seeded())
    assert grades(evaluation)["ranking"] == "unknown"
    assert evaluation["metrics"]["rank_correlation"]["value"] is None


def test_trust_is_qualified_where_another_rule_cautions():
    mean, epistemic, variance, targets = normal_case(400)
    evaluation = evaluate_regression(
        mean + 0.3 * variance.sqrt(), epistemic, variance, targets, resamples=60, generator=seeded()
    )
    assert grades(evaluation)["bias"] == "caution"
    assert evaluation["verdict"]["headline"] == "Trust them, with care"


def test_right_intervals_are_trusted_in_99_of_100_cases():
    held = torch.distributions.Binomial(400, torch.tensor(0.9)).sample((300,)).int().tolist()
    trusted = [coverage_rule(count, 400, 0.9, stretch=1.0).grade == "trust" for count in held]
    assert sum(trusted) / len(trusted) > 0.96


def test_negligible_differences_are_forgiven_however_many_rows_there_are():
    assert coverage_rule(91_000, 100_000, 0.9, stretch=0.97).grade == "trust"
    assert "too little to matter" in coverage_rule(91_000, 100_000, 0.9, stretch=0.97).text


def test_a_few_rows_can_show_that_intervals_fail():
    assert coverage_rule(2, 20, 0.9, stretch=5.0).grade == "overconfident"


def test_sure_and_right_on_a_few_rows_is_no_proof():
    assert confidence_rule(torch.full((12,), 0.999), right=12).grade == "cannot_tell"
    assert confidence_rule(torch.full((200,), 0.999), right=200).grade == "trust"


def test_rules_say_when_they_cannot_see():
    assert bias_rule(0.4, 1.0, rows=8).grade == "unknown"
    assert ranking_rule(0.3, rows=10, expected=-0.5, ratio=2.0).grade == "unknown"
    assert detection_rule(float("nan"), 0.0, wrong=0, expected=0.6).grade == "unknown"
    assert groups_rule([0.9], [40]) is None


# Chance


@pytest.mark.parametrize("N", [1, 2, 7, 64, 413])
def test_count_distribution_is_binomial_for_equal_probabilities(N):
    expected = torch.from_numpy(stats.binom.pmf(range(N + 1), N, 0.9))
    found = count_distribution(torch.full((N,), 0.9, dtype=torch.float64))
    assert_close(found[: N + 1], expected, atol=1e-13, rtol=0)
    assert_close(found[N + 1 :], torch.zeros_like(found[N + 1 :]), atol=1e-13, rtol=0)


def test_count_distribution_equals_one_row_at_a_time():
    p = torch.rand(37, generator=seeded(), dtype=torch.float64)
    pmf = torch.ones(1, dtype=torch.float64)
    for each in p:
        pmf = torch.cat([pmf * (1 - each), pmf.new_zeros(1)]) + torch.cat([pmf.new_zeros(1), pmf * each])
    assert_close(count_distribution(p)[:38], pmf, atol=1e-13, rtol=0)


@given(st.integers(1, 500), st.floats(0.05, 0.99))
def test_chance_range_holds_its_share(N, p):
    low, high = (round(end * N) for end in chance_range(torch.full((N,), p, dtype=torch.float64)))
    assert stats.binom.cdf(high, N, p) - stats.binom.cdf(low - 1, N, p) >= 0.99 - 1e-9
    assert stats.binom.cdf(low - 1, N, p) <= 0.005 + 1e-9


def test_rank_correlation_equals_scipy():
    first = torch.randint(9, (80,), generator=seeded()).double()
    second = first + torch.randint(9, (80,), generator=seeded(1)).double()
    assert_close(rank_correlation(first, second), float(stats.spearmanr(first, second).statistic))


def test_bootstrap_intervals_cover_the_truth():
    generator, covered = seeded(), []
    for _ in range(200):
        errors = torch.randn(150, generator=generator, dtype=torch.float64)

        def rmse(rows, errors=errors):
            return errors[rows].square().mean().sqrt()[None]

        low, high = bootstrap(rmse, rmse(slice(None)), 150, resamples=100, generator=generator)
        covered.append(low.item() <= 1 <= high.item())
    assert 0.88 <= sum(covered) / len(covered) <= 0.99


@pytest.mark.parametrize("evaluate", [regression, classification])
def test_values_lie_in_their_intervals(evaluate):
    for metric in evaluate()["metrics"].values():
        assert metric["low"] <= metric["value"] <= metric["high"]


# The dict


@pytest.mark.parametrize("evaluate", [regression, classification])
@pytest.mark.parametrize("N", [1, 5, 150])
def test_evaluation_is_json(evaluate, N):
    evaluation = evaluate(N)
    assert json.loads(json.dumps(evaluation, allow_nan=False)) == evaluation


@pytest.mark.parametrize("evaluate", [regression, classification])
def test_evaluation_depends_on_the_generator_alone(evaluate):
    assert evaluate() == evaluate()
    assert evaluate() != evaluate(generator=seeded(7))


def test_arrays_and_lists_are_as_good_as_tensors():
    case = normal_case(30)
    as_arrays = evaluate_regression(*(c.numpy() for c in case), resamples=5, generator=seeded())
    as_lists = evaluate_regression(*(c.tolist() for c in case), resamples=5, generator=seeded())
    assert as_arrays == as_lists == evaluate_regression(*case, resamples=5, generator=seeded())


def test_extreme_rows_are_the_extreme_rows():
    std = normal_case(400)[2].sqrt()
    evaluation = regression()
    assert [row["row"] for row in evaluation["most_certain"]] == std.argsort()[:5].tolist()
    assert [row["row"] for row in evaluation["least_certain"]] == std.argsort(descending=True)[:5].tolist()


def test_confusion_counts_true_classes_down():
    p = torch.tensor([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    labels = torch.tensor([0, 1, 2])
    evaluation = evaluate_classification(p, torch.zeros(3), labels, NAMES, resamples=5, generator=seeded())
    assert evaluation["confusion"] == [[1, 0, 0], [1, 0, 0], [0, 0, 1]]


def test_a_true_class_called_impossible_has_no_finite_likelihood():
    p = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]])
    evaluation = evaluate_classification(
        p, torch.zeros(2), torch.tensor([1, 0]), NAMES, resamples=5, generator=seeded()
    )
    assert evaluation["metrics"]["nll"]["value"] is None
    json.dumps(evaluation, allow_nan=False)


def test_errors_name_the_argument():
    mean, epistemic, variance, targets = normal_case(10)
    with pytest.raises(ValueError, match="total_variance must be positive"):
        evaluate_regression(mean, epistemic, 0 * variance, targets, generator=seeded())
    with pytest.raises(ValueError, match="epistemic_variance must be non-negative"):
        evaluate_regression(mean, -epistemic, variance, targets, generator=seeded())
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        evaluate_regression(mean, epistemic, variance, targets, level=90.0, generator=seeded())
    with pytest.raises(ValueError, match="one name for each of the 3 columns"):
        evaluate_classification(*class_case(10)[:3], ["ash"], generator=seeded())


# The page

HOSTILE = "<script>alert('column')</script>"
ROWS = [{HOSTILE: i, "True": "<img src=x onerror=alert(1)>", "size": i / 7} for i in range(400)]
SUMMARY = {"Source": "a & b.csv", HOSTILE: HOSTILE, "Columns": [{"name": HOSTILE, "missing": 3}]}


@pytest.fixture(params=["regression", "classification"])
def page(request, tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    ours, theirs = (
        (regression(), regression(scale=0.5))
        if request.param == "regression"
        else (classification(), classification(sharpness=3.0))
    )
    path = tmp_path / "report.html"
    return render_page(ours, baseline=theirs, data_summary=SUMMARY, title=HOSTILE, path=path, rows=ROWS)


def test_page_stands_alone(page):
    html = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.|<link|<script|<iframe|<img|@import|<[^>]*\ssrc=|url\((?!#)", html)
    assert set(re.findall(r'href="(.)', html)) <= {"#"}


def test_page_escapes_what_users_wrote(page):
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html and "<img" not in html
    assert html.count("&lt;script&gt;") >= 5  # title, twice; fact; table; rows
    assert "a &amp; b.csv" in html


def test_page_shows_verdict_charts_rows_and_versions(page):
    html = page.read_text(encoding="utf-8")
    assert "Trust them" in html and "plain deep ensemble" in html
    charts = re.findall(r'<svg viewBox="[^"]+" role="img" aria-labelledby="(.+?)"><title id="(.+?)">', html)
    assert len(charts) == (6 if "intervals held" in html else 4)
    assert all(label == title for label, title in charts)
    names = re.findall(r'\bid="([^"]+)"', html)
    assert len(names) == len(set(names))
    assert "Least certain rows" in html and "torch" in html


def test_page_is_the_same_each_time(tmp_path):
    pytest.importorskip("jinja2")
    known = {"date": "today", "versions": {"degp": "1"}}
    first, second = (
        render_page(regression(), data_summary={}, title="t", path=tmp_path / name, circumstances=known).read_bytes()
        for name in ("a.html", "b.html")
    )
    assert first == second


def test_many_classes_list_the_frequent_confusions(tmp_path):
    pytest.importorskip("jinja2")
    p = torch.randn(300, 20, generator=seeded()).softmax(-1)
    labels = torch.randint(20, (300,), generator=seeded(1))
    names = [f"class {i}" for i in range(20)]
    evaluation = evaluate_classification(p, torch.rand(300), labels, names, resamples=5, generator=seeded())
    html = render_page(evaluation, data_summary={}, title="t", path=tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Taken for" in html and 'class="confusion' not in html


def test_baseline_must_be_of_the_same_rows(tmp_path):
    with pytest.raises(ValueError, match="its rows is 30 where the evaluation's is 40"):
        render_page(regression(40), baseline=regression(30), data_summary={}, title="t", path=tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize(
    "value, shown",
    [
        (12.3456, "12.35"),
        (-0.5, "−0.5000"),
        (1234567.0, "1,234,567"),
        (1e-9, "1e−09"),
        (0.0, "0"),
        (None, "–"),
        (2009, "2009"),
        (True, "True"),
        ("north", "north"),
        (torch.tensor(2.5), "2.500"),
    ],
)
def test_numbers_are_written_for_reading(value, shown):
    assert number(value) == shown


# A frame may be as narrow as a phone; a window may not. The page in it is as it was written.
FRAME = """<!doctype html><iframe style="border: 0; width: {width}px; height: 2000px" srcdoc="{page}"></iframe>
<script>
document.querySelector('iframe').addEventListener('load', event => {{
  const page = event.target.contentDocument;
  const boxes = [...page.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect());
  document.title = JSON.stringify({{
    charts: boxes.length,
    narrowest: Math.min(...boxes.map(box => box.width)),
    lowest: Math.min(...boxes.map(box => box.height)),
    spill: page.documentElement.scrollWidth - page.documentElement.clientWidth,
  }});
}});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")
@pytest.mark.parametrize("width", [390, 1200])
def test_page_in_a_browser(page, width, tmp_path):
    """No complaint on the console; every chart is wide enough to read, and nothing spills over the side."""
    _, log = open_in_chromium(page, tmp_path)
    assert "CONSOLE" not in log
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=width, page=escape(page.read_text(encoding="utf-8"))), encoding="utf-8")
    dom, _ = open_in_chromium(frame, tmp_path)
    seen = json.loads(re.search(r"<title>(\{.+?\})</title>", dom)[1])
    assert seen["charts"] >= 4 and seen["narrowest"] > 340 and seen["lowest"] > 200 and seen["spill"] <= 0


def open_in_chromium(page, folder):
    """The document as the browser has it, and what the browser wrote to its log."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--enable-logging=stderr"]
    done = subprocess.run(
        [CHROMIUM, *options, f"--user-data-dir={folder / 'profile'}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def test_results_have_their_commit_and_a_mark_where_the_code_was_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEGP_COMMIT", raising=False)

    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout.strip()

    git("init")
    (tmp_path / "code.py").write_text("x = 1\n")
    save_results(tmp_path / "results" / "a", config={}, records=[])
    git("add", ".")
    git("commit", "-m", "first")
    save_results(tmp_path / "results" / "a", config={}, records=[{"changed": 1}])
    assert environment()["commit"] == git("rev-parse", "HEAD")
    (tmp_path / "code.py").write_text("x = 2\n")
    assert environment()["commit"] == git("rev-parse", "HEAD") + "-dirty"


def test_results_outside_a_checkout_have_no_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEGP_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment()["commit"] is None
