"""The report as one self-contained HTML page: verdict, metrics, charts and notable rows."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from degp.report.charts import draw_charts
from degp.report.evaluation import Evaluation
from degp.report.results import environment
from degp.report.verdict import percent
from degp.runtime.files import new_file

__all__ = ["metric_lines", "number", "render_page"]

Row = Mapping[str, Any]

CONFUSION_CLASSES = 12  # with more classes the matrix is too wide, and the most frequent confusions are listed


def render_page(
    evaluation: Evaluation,
    *,
    baselines: Mapping[str, Evaluation] | None = None,
    relevance: Mapping[str, float] | None = None,
    data_summary: Mapping[str, Any],
    title: str,
    path: Path | str,
    method: str = "DE-GP",
    baseline_note: str = "",
    rows: Sequence[Row] | Mapping[int, Row] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the page atomically and returns its path. The page needs no network and no script.

    Args:
        evaluation: from `evaluate_regression` or `evaluate_classification`.
        baselines: evaluations of other models on the same rows, by name; the charts show the first.
        relevance: the share of each column in the distances between rows, largest first.
        data_summary: facts by name; a list of dicts becomes a table.
        method: the name of the method that made the predictions.
        baseline_note: a sentence about the baselines, under the metrics.
        rows: `rows[i]` holds the values of test row i by column name; the rows listed on the page must be present.
        provenance: versions, hardware and commit; by default those of `environment`.

    Example:
        >>> from degp.report import evaluate_regression
        >>> columns = torch.zeros(50), torch.full((50,), 0.2), torch.ones(50), torch.linspace(-2, 2, 50)
        >>> evaluation = evaluate_regression(*columns, resamples=50, generator=torch.Generator().manual_seed(0))
        >>> page = render_page(evaluation, data_summary={"rows": 50}, title="Yield", path="report.html")
    """
    baselines = baselines or {}
    for name, baseline in baselines.items():
        _check_same_rows(evaluation, name, baseline)
    html = _template().render(
        title=title,
        method=method,
        evaluation=evaluation,
        baselines=baselines,
        baseline_note=baseline_note,
        facts={name: value for name, value in data_summary.items() if not _is_table(value)},
        tables={name: _table(value) for name, value in data_summary.items() if _is_table(value)},
        metrics=metric_lines(evaluation, *baselines.values()),
        charts=draw_charts(evaluation, next(iter(baselines.items()), None), relevance),
        confusion=_confusion(evaluation),
        certain=[_rows(evaluation, which, rows or {}) for which in ("most_certain", "least_certain")],
        provenance=_provenance(provenance or environment()),
    )
    path = Path(path)
    with new_file(path) as draft:
        draft.write_text(html, encoding="utf-8")
    return path


def number(value: Any, digits: int = 4) -> str:
    """A value for display: `digits` significant digits, a dash if it is missing, text unchanged."""
    if getattr(value, "ndim", None) == 0:  # a NumPy or torch scalar
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return (f"{value:,}" if abs(value) >= 10_000 else str(value)).replace("-", "−")
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits}g}".replace("-", "−")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{decimals}f}".replace("-", "−")


def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    source = files("degp.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    pages = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pages.filters |= {"number": number, "percent": percent, "unbroken": lambda text: text.replace(" %", "\u00a0%")}
    return pages.from_string(source)


def _check_same_rows(evaluation: Evaluation, label: str, baseline: Evaluation) -> None:
    for name in ("task", "rows"):
        if baseline[name] != evaluation[name]:
            raise ValueError(
                f"a baseline must be an evaluation on the same rows, but the {name} of {label!r} is {baseline[name]!r} "
                f"and that of the evaluation is {evaluation[name]!r}; evaluate both on the same table"
            )


def metric_lines(evaluation: Evaluation, *baselines: Evaluation) -> list[dict[str, Any]]:
    """One line per metric: its label, its ideal value, and one cell per method."""
    lines = []
    for name, ours in evaluation["metrics"].items():
        entries = [ours, *(baseline["metrics"][name] for baseline in baselines)]
        cells = [_cell(entry) for entry in entries]
        winner = _winner(entries)
        if winner is not None:
            cells[winner]["better"] = True
        lines.append({"label": ours["label"], "best": _ideal(ours), "cells": cells})
    return lines


def _cell(entry: Row) -> dict[str, Any]:
    write = percent if entry["unit"] == "fraction" else number
    ends = percent if entry["unit"] == "fraction" else partial(number, digits=3)
    if entry["value"] is None:
        return {"value": "–", "interval": "", "better": False}
    low, high = (ends(entry[key]) if entry[key] is not None else "–" for key in ("low", "high"))
    return {"value": write(entry["value"]), "interval": f"{low.removesuffix(' %')} to {high}", "better": False}


def _ideal(entry: Row) -> str:
    best = entry["best"]
    return {"lower": "lower is better", "higher": "higher is better", None: ""}.get(best) or (
        f"{percent(best)} is best" if best else ""
    )


def _winner(entries: Sequence[Row]) -> int | None:
    """Index of the best of several; None if its interval overlaps another, or the metric has no ideal value."""
    known = [i for i, e in enumerate(entries) if all(e[key] is not None for key in ("value", "low", "high"))]
    if len(known) < 2 or entries[0]["best"] is None:
        return None
    best = min(known, key=lambda i: _loss(entries[i]))
    first = entries[best]
    for second in (entries[i] for i in known if i != best):
        if first["low"] <= second["high"] and second["low"] <= first["high"]:
            return None
        if _loss(first) == _loss(second):
            return None
    return best


def _loss(entry: Row) -> float:
    best, value = entry["best"], entry["value"]
    return abs(value - best) if isinstance(best, float) else value if best == "lower" else -value


def _confusion(evaluation: Evaluation) -> dict[str, Any] | None:
    """The confusion matrix with its classes or, if it is too large, the most frequent confusions."""
    if evaluation["task"] != "classification":
        return None
    names, matrix = evaluation["classes"], evaluation["confusion"]
    if len(names) <= CONFUSION_CLASSES:
        lines = [[{"rows": n, "share": n / max(sum(line), 1)} for n in line] for line in matrix]
        return {"names": names, "lines": list(zip(names, lines, strict=True)), "frequent": []}
    pairs = [(n, names[i], names[j]) for i, line in enumerate(matrix) for j, n in enumerate(line) if n and i != j]
    return {"names": names, "lines": [], "frequent": sorted(pairs, key=lambda pair: -pair[0])[:10]}


def _rows(evaluation: Evaluation, which: str, values: Sequence[Row] | Mapping[int, Row]) -> dict[str, Any]:
    """The most or least certain rows as a table: prediction, target, and the values of the row."""
    describe = _interval if evaluation["task"] == "regression" else _class
    entries = evaluation[which]
    ours = _table([{"Row": entry["row"]} | describe(entry) for entry in entries])
    given = _table([values[entry["row"]] if values else {} for entry in entries])  # separate: column names may coincide
    return {
        "title": which.replace("_", " ").capitalize() + " rows",
        "names": ours["names"] + given["names"],
        "lines": [first + second for first, second in zip(ours["lines"], given["lines"], strict=True)],
        "good": [entry["inside" if evaluation["task"] == "regression" else "correct"] for entry in entries],
    }


def _interval(entry: Row) -> dict[str, Any]:
    return {
        "Predicted": f"{number(entry['prediction'])} ({number(entry['low'])} to {number(entry['high'])})",
        "True": f"{number(entry['target'])}, {'inside' if entry['inside'] else 'outside'}",
        "Std (epistemic)": f"{number(entry['std'], 3)} ({number(entry['epistemic_std'], 3)})",
    }


def _class(entry: Row) -> dict[str, Any]:
    return {
        "Predicted": f"{entry['prediction']} ({percent(entry['confidence'])})",
        "True": f"{entry['target']}, {'correct' if entry['correct'] else 'wrong'}",
        "Entropy (epistemic)": f"{number(entry['entropy'], 3)} ({number(entry['epistemic'], 3)})",
    }


def _provenance(known: Mapping[str, Any]) -> dict[str, Any]:
    """Software and hardware, without the command, whose paths may be private."""
    versions = dict(known.get("versions", {}))
    named = {name: known[name] for name in ("date", "python", "system", "device", "cores", "commit") if name in known}
    return {name: value for name, value in (versions | named).items() if value is not None}


def _is_table(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(line, Mapping) for line in value)


def _table(lines: Sequence[Row]) -> dict[str, Any]:
    """Column names in order of appearance, and the cells."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    return {"names": names, "lines": [[line.get(name) for name in names] for line in lines]}
