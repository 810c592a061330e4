"""`degp evaluate` and `degp report`: accuracy and calibration of a model on labelled rows."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from degp.cli import options
from degp.cli.console import console, line, print_json
from degp.methods import Kind
from degp.runtime.files import require_writable

if TYPE_CHECKING:
    import pandas as pd

    from degp.tabular.saving import Model

__all__ = ["evaluate", "report"]

Labelled = Annotated[Path, typer.Argument(help="Rows with their targets, not seen in training.", show_default=False)]
MAX_LINES = 20
MAX_COLUMNS = 8  # of the rows that are listed: more do not fit on a page


def evaluate(
    model: options.Model,
    table: Labelled,
    level: options.Level = 0.9,
    resamples: options.Resamples = 500,
    json: options.Json = False,
) -> None:
    """Measure on labelled rows how accurate the predictions are, and whether their error bars are reliable."""
    from degp.report.page import metric_lines

    _, _, evaluation = _evaluated(model, table, level, resamples)
    if json:
        print_json({key: value for key, value in evaluation.items() if key in JSON_KEYS})
        return
    shown = Table(title=f"{evaluation['rows']} rows of {table}", title_justify="left")
    for heading in ("metric", "value", "95 % interval", ""):
        shown.add_column(heading, justify="left" if heading in ("metric", "") else "right")
    for entry in metric_lines(evaluation):
        shown.add_row(entry["label"], entry["cells"][0]["value"], entry["cells"][0]["interval"], entry["best"])
    console.print(shown, markup=False)
    verdict = evaluation["verdict"]
    line(verdict["text"])
    for reason in verdict["reasons"][1:]:
        line(f"  {MARKS[reason['grade']]} {reason['text']}")


def report(
    model: options.Model,
    table: Labelled,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    train: Annotated[
        Path | None,
        typer.Option(help="The table of `degp fit`, to train a deep ensemble for comparison.", show_default=False),
    ] = None,
    level: options.Level = 0.9,
    resamples: options.Resamples = 500,
    quiet: options.Quiet = False,
) -> None:
    """Write one HTML page that says whether the error bars are reliable, and shows why."""
    from degp.report import render_page
    from degp.tabular import read_table
    from degp.tabular.model import encode_labelled, evaluate_rows, plain_ensemble, text_columns

    require_writable(out.parent)
    log = Console(quiet=quiet)
    loaded, frame, evaluation = _evaluated(model, table, level, resamples)
    target = loaded.metadata["target"]["name"]
    baseline = None
    if train is not None:
        line(f"Training a plain deep ensemble on {train} for comparison …", log)
        verbose = not quiet and sys.stderr.isatty()
        plain = plain_ensemble(loaded, read_table(train, text=text_columns(loaded)), verbose=verbose)
        baseline = evaluate_rows(plain, frame, level=level, resamples=resamples, generator=_generator())
    path = render_page(
        evaluation,
        baseline=baseline,
        data_summary=_summary(loaded, model, table, train, out),
        title=f"{target} from {table.name}",
        path=out,
        method=Kind(loaded.estimator.method).label,
        rows=_listed_rows(evaluation, encode_labelled(loaded, frame)[0], target),
    )
    line(evaluation["verdict"]["text"], log)
    line(f"Page: {path}", log)


JSON_KEYS = ("task", "rows", "level", "classes", "metrics", "confusion", "verdict")
MARKS = {"good": "✓", "caution": "!", "unknown": "?"}


def _evaluated(
    folder: Path, table: Path, level: float, resamples: int
) -> tuple["Model", "pd.DataFrame", dict[str, Any]]:
    """The model, the table, and the evaluation of the one on the other."""
    from degp.tabular import read_table
    from degp.tabular.model import evaluate_rows, text_columns
    from degp.tabular.saving import load_model

    model = load_model(folder)
    frame = read_table(table, text=text_columns(model))
    return model, frame, evaluate_rows(model, frame, level=level, resamples=resamples, generator=_generator())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)  # the same numbers in every call


def _summary(model: "Model", folder: Path, table: Path, train: Path | None, out: Path) -> dict[str, Any]:
    """Facts about model and data for the page."""
    metrics, estimator = model.metadata["metrics"], model.estimator
    again = shlex.join(["degp", "report", str(folder), str(table), "--train", "TABLE", "--out", str(out)])
    alpha = f", α = {estimator.alpha_:g}" if estimator.alpha_ is not None else ""
    compared = f"a plain deep ensemble, trained on {train.name} with the same settings" if train else None
    facts = {
        "Target": model.metadata["target"]["name"],
        "Test table": table.name,
        "Training rows": metrics.get("rows"),
        "Labels added later": metrics.get("updated_rows"),
        "Method": f"{Kind(estimator.method).label}, {estimator.members} networks{alpha}",
        "Compared with": compared or f"nothing; to compare with a plain deep ensemble, {again}",
        "Columns": _columns(model.metadata["preprocessing"]),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _columns(preprocessing: dict[str, Any]) -> list[dict[str, str]]:
    """How the first columns are encoded, as lines of a table."""
    names = [*(column["name"] for column in preprocessing["columns"]), *preprocessing["ignored"]]
    starts = {f"{name!r}: ": name for name in names}
    lines = [
        {"Column": name, "Read as": note.removeprefix(start)}
        for note in preprocessing["notes"]
        for start, name in starts.items()
        if note.startswith(start)
    ]
    more = len(lines) - MAX_LINES
    return lines[:MAX_LINES] + ([{"Column": f"… and {more} more", "Read as": ""}] if more > 0 else [])


def _listed_rows(evaluation: dict[str, Any], rows: "pd.DataFrame", target: str) -> dict[int, dict[str, Any]]:
    """Values of the rows that the page lists, without their targets."""
    places = {entry["row"] for which in ("most_certain", "least_certain") for entry in evaluation[which]}
    few = rows.drop(columns=target).iloc[:, :MAX_COLUMNS]
    return {place: few.iloc[place].to_dict() for place in places}
