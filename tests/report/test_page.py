"""The page is self-contained, escapes user input, and is readable on a phone."""

import json
import re
import shutil
import subprocess
from html import escape

import pytest
import torch

from degp.report import evaluate_classification, render_page
from degp.report.page import metric_lines, number
from tests.report.cases import classification, regression, seeded

CHROMIUM = shutil.which("chromium")

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
    return render_page(
        ours,
        baselines={"Trees": theirs, HOSTILE: theirs},
        relevance={HOSTILE: 0.7, "$a$ & b": 0.3},
        data_summary=SUMMARY,
        title=HOSTILE,
        path=path,
        rows=ROWS,
    )


def test_page_is_self_contained(page):
    html = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.|<link|<script|<iframe|<img|@import|<[^>]*\ssrc=|url\((?!#)", html)
    assert set(re.findall(r'href="(.)', html)) <= {"#"}


def test_page_escapes_user_input(page):
    html = page.read_text(encoding="utf-8")
    assert "<script" not in html and "<img" not in html
    assert html.count("&lt;script&gt;") >= 5  # title, twice; fact; table; rows
    assert "a &amp; b.csv" in html


def test_page_shows_verdict_charts_rows_and_versions(page):
    html = page.read_text(encoding="utf-8")
    assert "Trust them" in html and "Trees on the same rows: " in html
    charts = re.findall(r'<svg viewBox="[^"]+" role="img" aria-labelledby="(.+?)"><title id="(.+?)">', html)
    assert len(charts) == (8 if "intervals cover" in html else 5)
    assert all(label == title for label, title in charts)
    names = re.findall(r'\bid="([^"]+)"', html)
    assert len(names) == len(set(names))
    assert "Least certain rows" in html and "torch" in html


def test_the_verdict_and_the_metrics_come_before_the_columns(page):
    html = page.read_text(encoding="utf-8")
    headings = re.findall(r"<h2[^>]*>(.+?)</h2>", html)
    assert headings[1] == "Metrics"
    assert html.index("<caption>Columns") > html.index("Least certain rows")
    assert ("Recall" in html) == ("Confusion matrix" in headings)


def test_the_charts_show_the_first_baseline_and_at_most_twelve_columns(tmp_path):
    pytest.importorskip("jinja2")
    shares = {f"column {i}": 1 / 15 for i in range(15)}
    path = tmp_path / "p.html"
    rivals = {"Trees": regression(scale=2.0), "Lines": regression(scale=0.5)}
    html = render_page(
        regression(), baselines=rivals, relevance=shares, data_summary={}, title="t", path=path
    ).read_text(encoding="utf-8")
    assert ">trees<" in html and ">lines<" not in html
    assert ">column 11<" in html and ">column 12<" not in html and ">3 others<" in html


def test_page_is_reproducible(tmp_path):
    pytest.importorskip("jinja2")
    known = {"date": "today", "versions": {"degp": "1"}}
    first, second = (
        render_page(regression(), data_summary={}, title="t", path=tmp_path / name, provenance=known).read_bytes()
        for name in ("a.html", "b.html")
    )
    assert first == second


def test_many_classes_list_the_most_frequent_confusions(tmp_path):
    pytest.importorskip("jinja2")
    p = torch.randn(300, 20, generator=seeded()).softmax(-1)
    labels = torch.randint(20, (300,), generator=seeded(1))
    names = [f"class {i}" for i in range(20)]
    evaluation = evaluate_classification(p, torch.rand(300), labels, names, resamples=5, generator=seeded())
    html = render_page(evaluation, data_summary={}, title="t", path=tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Predicted class" in html and 'class="confusion' not in html


def test_baseline_must_be_evaluated_on_the_same_rows(tmp_path):
    with pytest.raises(ValueError, match="the rows of 'Trees' is 30 and that of the evaluation is 40"):
        rivals = {"Trees": regression(30)}
        render_page(regression(40), baselines=rivals, data_summary={}, title="t", path=tmp_path / "p.html")
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
def test_numbers_are_formatted_for_display(value, shown):
    assert number(value) == shown


# Headless windows have a minimum width; a frame can be as narrow as a phone.
FRAME = """<!doctype html><iframe style="border: 0; width: {width}px; height: 2000px" srcdoc="{page}"></iframe>
<script>
document.querySelector('iframe').addEventListener('load', event => {{
  const page = event.target.contentDocument;
  const boxes = [...page.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect());
  document.title = JSON.stringify({{
    charts: boxes.length,
    narrowest: Math.min(...boxes.map(box => box.width)),
    lowest: Math.min(...boxes.map(box => box.height)),
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
  }});
}});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")
@pytest.mark.parametrize("width", [390, 1200])
def test_page_in_a_browser(page, width, tmp_path):
    """The console is empty, every chart is wide enough to read, and nothing overflows horizontally."""
    _, log = open_in_chromium(page, tmp_path)
    assert "CONSOLE" not in log
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=width, page=escape(page.read_text(encoding="utf-8"))), encoding="utf-8")
    dom, _ = open_in_chromium(frame, tmp_path)
    seen = json.loads(re.search(r"<title>(\{.+?\})</title>", dom)[1])
    assert seen["charts"] >= 4 and seen["narrowest"] > 340 and seen["lowest"] > 200 and seen["overflow"] <= 0


def open_in_chromium(page, folder):
    """The rendered document and the log of the browser."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--enable-logging=stderr"]
    done = subprocess.run(
        [CHROMIUM, *options, f"--user-data-dir={folder / 'profile'}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def entry(value, low, high, best="lower"):
    return {"label": "NLL", "unit": "nats", "best": best, "value": value, "low": low, "high": high}


@pytest.mark.parametrize(
    "ours, theirs, better",
    [
        (entry(1.0, 0.9, 1.1), entry(1.3, 1.2, 1.4), [True, False]),
        (entry(1.0, 0.9, 1.1), entry(1.05, 1.0, 1.1), [False, False]),  # the intervals overlap
        (entry(0.7, 0.6, 0.8, "higher"), entry(0.9, 0.85, 0.95, "higher"), [False, True]),
        (entry(0.7, 0.6, 0.8, 0.9), entry(0.88, 0.85, 0.91, 0.9), [False, True]),  # closer to the ideal value
        (entry(0.7, 0.6, 0.8, None), entry(0.9, 0.85, 0.95, None), [False, False]),
        (entry(None, None, None), entry(0.9, 0.85, 0.95), [False, False]),
    ],
)
def test_a_metric_is_better_if_the_intervals_do_not_overlap(ours, theirs, better):
    (line,) = metric_lines({"metrics": {"nll": ours}}, {"metrics": {"nll": theirs}})
    assert [cell["better"] for cell in line["cells"]] == better


def test_the_best_of_three_must_be_better_than_both_others():
    def better(*entries):
        (line,) = metric_lines(*({"metrics": {"nll": one}} for one in entries))
        return [cell["better"] for cell in line["cells"]]

    good, close, far = entry(1.0, 0.9, 1.1), entry(1.15, 1.05, 1.25), entry(2.0, 1.9, 2.1)
    assert better(far, good, entry(1.5, 1.4, 1.6)) == [False, True, False]
    assert better(far, good, close) == [False, False, False]
    assert better(far, good, entry(None, None, None)) == [False, True, False]
