"""`degp evaluate` and `degp report`: accuracy and calibration of a model on labelled rows, with simple baselines."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from rich.box import SIMPLE
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
Training = Annotated[
    Path | None,
    typer.Option(
        help="The table of `degp fit`: gradient boosting and a linear model are trained on it, for comparison.",
        show_default=False,
    ),
]
MAX_LINES = 20
MAX_COLUMNS = 8  # of the rows that are listed: more do not fit on a page
MAX_CLASSES = 12  # in the terminal
SILENT_SECONDS = 2.0  # before a progress bar appears
CONSTANT_BARS = "The baselines of scikit-learn have constant error bars, the RMSE of five-fold cross-validation."


def evaluate(
    model: options.Model,
    table: Labelled,
    train: Training = None,
    level: options.Level = 0.9,
    resamples: options.Resamples = 500,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure on labelled rows how accurate the predictions are, and whether their error bars are reliable."""
    result = _compared(model, table, train, level, resamples, progress=not quiet)
    if json:
        print_json(_as_json(result))
        return
    for target in result.evaluations:
        _print(result, target, table)


def report(
    model: options.Model,
    table: Labelled,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    train: Training = None,
    deep_ensemble: Annotated[
        bool,
        typer.Option("--deep-ensemble", help="With `--train`: also a plain deep ensemble; takes as long as `fit`."),
    ] = False,
    level: options.Level = 0.9,
    resamples: options.Resamples = 500,
    quiet: options.Quiet = False,
) -> None:
    """Write one HTML page per target that says whether the error bars are reliable, and shows why."""
    from degp.report import render_page
    from degp.tabular.model import column_relevance, encode_labelled

    require_writable(out.parent)
    if deep_ensemble and train is None:
        raise ValueError("--deep-ensemble needs a table to train on, but there is none; pass --train TABLE as well")
    log = Console(quiet=quiet)
    result = _compared(model, table, train, level, resamples, progress=not quiet, deep_ensemble=deep_ensemble)
    loaded, rows = result.model, encode_labelled(result.model, result.frame)[0]
    for target, evaluation in result.evaluations.items():
        path = render_page(
            evaluation,
            baselines={name: evaluations[target] for name, evaluations in result.baselines.items()},
            baseline_note=CONSTANT_BARS if evaluation["task"] == "regression" else "",
            relevance=column_relevance(loaded),
            data_summary=_summary(loaded, target, model, table, train, out),
            title=f"{target} from {table.name}",
            path=out if len(result.evaluations) == 1 else out.with_name(f"{out.stem}-{_file_name(target)}{out.suffix}"),
            method=Kind(loaded.estimator.method).label,
            rows=_listed_rows(evaluation, rows.drop(columns=list(result.evaluations))),
        )
        line(evaluation["verdict"]["text"], log)
        line(f"Page: {path}", log)


@dataclass(frozen=True)
class _Compared:
    """A model and its baselines on the same rows; one evaluation per target."""

    model: "Model"
    frame: "pd.DataFrame"
    evaluations: dict[str, dict[str, Any]]
    baselines: dict[str, dict[str, dict[str, Any]]]


JSON_KEYS = ("task", "rows", "level", "classes", "metrics", "confusion", "per_class", "verdict")
ARROWS = {"higher is better": "↑", "lower is better": "↓"}
MARKS = {"good": "✓", "caution": "!", "unknown": "?"}


def _compared(
    folder: Path,
    table: Path,
    train: Path | None,
    level: float,
    resamples: int,
    *,
    progress: bool,
    deep_ensemble: bool = False,
) -> _Compared:
    """Evaluates the model and, if there is a table to train them on, its baselines."""
    from degp.runtime.progress import progress_bar
    from degp.tabular.evaluating import evaluate_baseline, evaluate_rows, simple_baselines
    from degp.tabular.model import read_rows, target_of
    from degp.tabular.saving import load_model

    model = load_model(folder)
    frame, rows = read_rows(model, table), None if train is None else read_rows(model, train)
    rivals = {} if rows is None else simple_baselines(model, rows)
    ensembles = _deep_ensemble(model, rows, verbose=progress) if deep_ensemble and rows is not None else {}
    each = 2 * resamples * len(target_of(model).names)
    with progress_bar(each * (1 + len(rivals) + len(ensembles)), "resample", progress, after=SILENT_SECONDS) as bar:

        def sampling() -> dict[str, Any]:
            generator = torch.Generator().manual_seed(0)  # the same numbers in every call
            return {"level": level, "resamples": resamples, "generator": generator, "tick": bar.update}

        evaluations = evaluate_rows(model, frame, **sampling())
        baselines = {name: evaluate_rows(other, frame, **sampling()) for name, other in ensembles.items()}
        baselines |= {name: evaluate_baseline(rival, model, frame, **sampling()) for name, rival in rivals.items()}
    return _Compared(model, frame, evaluations, baselines)


def _deep_ensemble(model: "Model", rows: "pd.DataFrame", *, verbose: bool) -> dict[str, "Model"]:
    from degp.tabular.evaluating import plain_ensemble

    return {"Deep ensemble": plain_ensemble(model, rows, verbose=verbose)}


def _as_json(result: _Compared) -> dict[str, Any]:
    """What `evaluate --json` prints: the evaluation, or with several targets one per target."""

    def plain(target: str) -> dict[str, Any]:
        evaluation = {key: value for key, value in result.evaluations[target].items() if key in JSON_KEYS}
        metrics = {name: evaluations[target]["metrics"] for name, evaluations in result.baselines.items()}
        return evaluation | ({"baselines": metrics} if metrics else {})

    targets = {target: plain(target) for target in result.evaluations}
    return next(iter(targets.values())) if len(targets) == 1 else {"targets": targets}


def _print(result: _Compared, target: str, table: Path) -> None:
    """Metrics, classes and verdict of one target, in the terminal."""
    from degp.report.page import metric_lines

    evaluation = result.evaluations[target]
    rivals = {name: evaluations[target] for name, evaluations in result.baselines.items()}
    named = f"{target}: " if len(result.evaluations) > 1 else ""
    method = Kind(result.model.estimator.method).label
    shown = Table(
        title=f"{named}{evaluation['rows']} rows of {table}", title_justify="left", box=SIMPLE, padding=(0, 1)
    )
    shown.add_column("metric")
    for heading in (method, *(rivals or ["95 % interval"])):
        shown.add_column(heading, justify="right")
    for entry in metric_lines(evaluation, *rivals.values()):
        ours, *theirs = entry["cells"]
        label = f"{entry['label']} {ARROWS.get(entry['best'], '')}".strip()
        shown.add_row(label, ours["value"], *(cell["value"] for cell in theirs) if rivals else [ours["interval"]])
    console.print(shown, markup=False)
    line("↑ higher is better, ↓ lower is better")
    if rivals and evaluation["task"] == "regression":
        line(CONSTANT_BARS)
    _print_classes(evaluation.get("per_class", []))
    line(evaluation["verdict"]["text"])
    for reason in evaluation["verdict"]["reasons"][1:]:
        line(f"  {MARKS[reason['grade']]} {reason['text']}")


def _print_classes(classes: list[dict[str, Any]]) -> None:
    from degp.report.verdict import percent

    if not 0 < len(classes) <= MAX_CLASSES:
        return
    shown = Table(box=SIMPLE, padding=(0, 1))
    for heading, justify in (("class", "left"), ("rows", "right"), ("recall", "right"), ("precision", "right")):
        shown.add_column(heading, justify=justify)
    for entry in classes:
        shares = ("–" if entry[key] is None else percent(entry[key]) for key in ("recall", "precision"))
        shown.add_row(entry["name"], str(entry["rows"]), *shares)
    console.print(shown, markup=False)


def _summary(model: "Model", target: str, folder: Path, table: Path, train: Path | None, out: Path) -> dict[str, Any]:
    """Facts about model and data for the page."""
    metrics, estimator = model.metadata["metrics"], model.estimator
    again = shlex.join(["degp", "report", str(folder), str(table), "--train", "TABLE", "--out", str(out)])
    alpha = f", α = {estimator.alpha_:g}" if estimator.alpha_ is not None else ""
    facts = {
        "Target": target,
        "Test table": table.name,
        "Training rows": metrics.get("rows"),
        "Labels added later": metrics.get("updated_rows"),
        "Method": f"{Kind(estimator.method).label}, {estimator.config().members} networks{alpha}",
        "Target transform": estimator.target_transform_.name if hasattr(estimator, "target_transform_") else None,
        "Training": _training(model),
        "Compared with": f"models trained on {train.name}" if train else f"nothing; to compare with baselines, {again}",
        "Columns": _columns(model.metadata["preprocessing"]),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _training(model: "Model") -> str | None:
    """How long the model was trained, and whether it had the time it needed."""
    from degp.training import Ending

    estimator = model.estimator
    if not estimator.history_:
        return None
    cut = ", cut off by its time limit" if estimator.ending_ == Ending.TIME else ""
    last = estimator.history_[-1]
    return f"{last['step']} steps in {last['seconds']:.3g} s{cut}"


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


def _listed_rows(evaluation: dict[str, Any], rows: "pd.DataFrame") -> dict[int, dict[str, Any]]:
    """Values of the rows that the page lists, from the first columns."""
    places = {entry["row"] for which in ("most_certain", "least_certain") for entry in evaluation[which]}
    few = rows.iloc[:, :MAX_COLUMNS]
    return {place: few.iloc[place].to_dict() for place in places}


def _file_name(target: str) -> str:
    """The target's name, with what file names cannot hold replaced."""
    return "".join(character if character.isalnum() or character in "-_" else "_" for character in target)
