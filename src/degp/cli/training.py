"""`degp fit` and `degp update`: models from tables, and new labels for them."""

import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import typer
from rich.console import Console

from degp.cli import options
from degp.cli.console import line, notes, print_json
from degp.cli.partial import file_digest, partial_of, resumable
from degp.files import require_writable

if TYPE_CHECKING:
    from degp.distributed import Mesh
    from degp.saving import Estimator
    from degp.table_model import Rows

MOST_NOTES = 20
ADVANCED = "Advanced"


def fit(
    table: Annotated[Path, typer.Argument(help="A .csv, .tsv (also .gz) or .parquet file.", show_default=False)],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the model; a model there is replaced.", show_default=False)],
    task: Annotated[
        Literal["regression", "classification"] | None,
        typer.Option(help="What to predict, if not what the target's values suggest.", show_default=False),
    ] = None,
    objective: Annotated[
        Literal["degp", "de", "rde", "rms"], typer.Option(help="DE-GP, or one of its baselines.")
    ] = "degp",
    members: Annotated[int, typer.Option(min=2, help="Networks in the ensemble.")] = 10,
    max_seconds: Annotated[
        float | None, typer.Option(min=0, help="Train no longer than this.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="For everything random.")] = 0,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where to train.")] = "cpu",
    noise: Annotated[
        Literal["constant", "input-dependent"],
        typer.Option(help="Whether the noise of a number depends on the other columns.", rich_help_panel=ADVANCED),
    ] = "constant",
    hidden: Annotated[str, typer.Option(help="Widths of the hidden layers.", rich_help_panel=ADVANCED)] = "100,100",
    max_epochs: Annotated[
        int, typer.Option(min=1, help="Passes over the table at most, of 32 batches at most.", rich_help_panel=ADVANCED)
    ] = 1000,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn to predict a column of a table, with error bars.

    Ctrl-C keeps what was learned beside the model, and the same command goes on from there. Under
    `torchrun --nproc-per-node=4 -m degp fit …` four processes share out the networks.
    """
    from degp.distributed import start
    from degp.saving import check_place, save_model
    from degp.table_model import estimator_for, prepare, validation_nll
    from degp.tables import read_table

    widths = _widths(hidden)
    _check_device(device)
    mesh = start(device=device)
    said = Console(stderr=json, quiet=quiet or not mesh.is_first)
    check_place(out)
    if mesh.is_first:
        require_writable(out.parent)  # what is broken off lies beside the model
        _require_writable(out)
    rows = prepare(read_table(table), target, task)
    _describe(rows, said)
    settings = {
        "objective": objective,
        "members": members,
        "hidden_layers": widths,
        "noise": noise,
        "random_state": seed,
        "device": device,
    }
    run = settings | {"hidden_layers": list(widths), "target": target, "task": rows.target.task}
    partial = partial_of(out)
    try:
        with _kept(mesh, partial, run | {"table": file_digest(table)}) as epochs_done:
            if epochs_done:
                line(f"Going on from epoch {epochs_done} of {partial}.", said)
            limits = {"max_epochs": max_epochs, "max_seconds": max_seconds}
            shown = {"checkpoint": str(partial), "verbose": not said.quiet and sys.stderr.isatty()}
            estimator = estimator_for(rows.target, settings | limits | shown)
            estimator.fit(rows.inputs, rows.targets)
            if not mesh.is_first:
                return
            estimator.set_params(checkpoint=None, verbose=False)
            metrics = {
                "rows": len(rows.inputs),
                "validation_nll": validation_nll(estimator),
                "epochs": estimator.n_iter_,
                "seconds": estimator.history_[-1]["seconds"],  # with those before an interruption
            }
            save_model(out, estimator, preprocessing=rows.preprocessing, target=rows.target, metrics=metrics)
    except KeyboardInterrupt:
        if mesh.is_first:
            _tell_interrupted(partial)
        raise typer.Exit(130) from None
    _conclude(estimator, out, metrics, said)
    if json:
        facts = {"model": str(out), "task": rows.target.task, "target": target, "objective": objective}
        told = {"alpha": estimator.alpha_, "notes": [*rows.target.notes, *rows.preprocessing.notes]}
        print_json(facts | metrics | told)


def update(
    model: options.Model,
    table: Annotated[Path, typer.Argument(help="Rows with their targets.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the updated model; by default it takes the place of the old one.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Take in new labels without training: condition the Gaussian process on them.

    Give each label once, and none that the model was trained on: it would count twice.
    """
    from degp.saving import check_place, load_model, save_model
    from degp.table_model import text_columns, update_rows
    from degp.tables import read_table

    said, place = Console(stderr=json, quiet=quiet), check_place(out or model)
    _require_writable(place)
    loaded = load_model(model)
    moved = update_rows(loaded, read_table(table, text=text_columns(loaded)))
    metrics = dict(loaded.metadata["metrics"])
    metrics["updated_rows"] = metrics.get("updated_rows", 0) + moved.rows
    save_model(place, loaded.estimator, preprocessing=loaded.preprocessing, target=loaded.target, metrics=metrics)
    line(f"Conditioned on {moved.rows} new labels.", said)
    for name, (before, after) in (
        ("coefficients of the members, std", moved.std),
        ("epistemic std at these rows", moved.epistemic_std),
        ("RMSE at these rows", moved.rmse),
    ):
        line(f"  {name}: {before:.4g} → {after:.4g}", said)
    line(f"  coefficients of the members, means: moved by {moved.shift:.3g} of their prior std", said)
    line(f"Saved: {place}", said)
    if json:
        print_json({"model": str(place), **asdict(moved), "updated_rows": metrics["updated_rows"]})


def _kept(mesh: "Mesh", partial: Path, run: dict[str, Any]) -> AbstractContextManager[int]:
    """How many epochs are done already; the first rank keeps the folder."""
    return resumable(partial, run) if mesh.is_first else nullcontext(0)


def _require_writable(model: Path) -> None:
    """A model takes the place of another in its folder, and comes in a folder of its own where there is none."""
    require_writable(model if model.exists() else model.parent)


def _widths(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"--hidden must be widths such as 100,100, but it is {text!r}")
    return tuple(int(part) for part in parts)


def _check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs an NVIDIA GPU that torch can use, but there is none; leave it out")


def _describe(rows: "Rows", said: Console) -> None:
    """What was made of the table, in sentences."""
    N, D = rows.inputs.shape
    line(f"Target {'. '.join(rows.target.notes)}.", said)
    line(f"{N} rows, {len(rows.preprocessing.columns)} columns, {D} features:", said)
    told = rows.preprocessing.notes
    for note in told[:MOST_NOTES]:
        line(f"  {note}", said)
    if len(told) > MOST_NOTES:
        line(f"  … and {len(told) - MOST_NOTES} more, all in model.json", said)


def _conclude(estimator: "Estimator", out: Path, metrics: dict[str, Any], said: Console) -> None:
    alpha = f"α = {estimator.alpha_:g}, " if estimator.alpha_ is not None else ""
    line(
        f"Trained in {metrics['seconds']:.1f} s, {metrics['epochs']} epochs: {estimator.members} networks, {alpha}"
        f"validation NLL {metrics['validation_nll']:.4g}.",
        said,
    )
    folder = shlex.quote(str(out))
    line(f"Saved: {out}", said)
    line(f"Next:  degp predict {folder} new.csv --out predictions.csv", said)
    line(f"       degp report {folder} test.csv --out report.html", said)


def _tell_interrupted(partial: Path) -> None:
    if partial.exists():
        line(f"stopped: what was learned is in {partial}; run the same command again to go on", notes)
    else:
        line("stopped before anything was learned", notes)
