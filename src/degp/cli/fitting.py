"""`degp fit` and `degp update`: train a model on a table, and condition it on new labels."""

import math
import shlex
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import typer
from rich.console import Console

from degp.cli import options
from degp.cli.console import line, notes, print_json
from degp.cli.resuming import file_digest, partial_of, resumable
from degp.methods import Kind
from degp.runtime.files import require_writable

if TYPE_CHECKING:
    from degp.runtime.distributed import Mesh
    from degp.tabular.model import TrainingRows
    from degp.tabular.saving import Estimator

__all__ = ["fit", "update"]

MAX_NOTES = 20
ADVANCED = "Advanced"


def fit(
    table: Annotated[Path, typer.Argument(help="A .csv, .tsv (also .gz), .xlsx or .parquet file.", show_default=False)],
    target: Annotated[
        list[str],
        typer.Option(help="The column to predict; repeat it for several columns of numbers.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model; a model there is replaced.", show_default=False)],
    drop: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; can be repeated.", show_default=False)
    ] = None,
    header: Annotated[
        Literal["first", "none"],
        typer.Option(help="The first line names the columns; or there are no names, and columns are called 1, 2, …"),
    ] = "first",
    task: Annotated[
        Literal["regression", "classification"] | None,
        typer.Option(help="By default inferred from the target's values.", show_default=False),
    ] = None,
    method: Annotated[Kind, typer.Option(help="DE-GP, or one of its baselines.")] = Kind.DEGP,
    preset: Annotated[
        Literal["fast", "default", "best"],
        typer.Option(help="How much to train: fast is an eighth of default, best six times as much."),
    ] = "default",
    members: Annotated[
        int | None, typer.Option(min=2, help="Networks in the ensemble; by default the preset's.", show_default=False)
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Train no longer than this.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="For everything random.")] = 0,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where to train.")] = "cpu",
    noise: Annotated[
        Literal["constant", "input-dependent"],
        typer.Option(help="Noise of a real target: one variance, or one per row.", rich_help_panel=ADVANCED),
    ] = "constant",
    hidden: Annotated[str, typer.Option(help="Widths of the hidden layers.", rich_help_panel=ADVANCED)] = "64,64",
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Steps of the optimiser; by default the preset's.",
            show_default=False,
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a model that predicts a column of a table, with error bars.

    Ctrl-C saves a checkpoint next to the model, and the same command resumes from it. Under
    `torchrun --nproc-per-node=4 -m degp fit …` the networks are distributed over four processes.
    """
    from degp.runtime.distributed import start
    from degp.tabular.model import estimator_for
    from degp.tabular.targets import REGRESSION

    settings: dict[str, Any] = {
        "preset": preset,
        "steps": steps,
        "method": method.value,
        "members": members,
        "hidden_layers": _widths(hidden),
        "noise": noise,
        "random_state": seed,
        "device": device,
    }
    _check_time(max_seconds)
    _check_device(device)
    mesh = start(device=device)
    log = Console(stderr=json, quiet=quiet or not mesh.is_first)
    _check_destination(out, mesh)
    rows = _training_rows(table, target, task, drop=drop or [], header=header == "first")
    _describe(rows, log)
    limits = {"max_seconds": max_seconds, "verbose": not log.quiet}
    estimator = estimator_for(rows.target, settings | limits)
    run = settings | {"hidden_layers": list(settings["hidden_layers"]), "task": rows.target.task}
    run |= {"target": target if len(target) > 1 else target[0], "table": file_digest(table)}
    run |= {"drop": sorted(drop)} if drop else {}
    metrics = _train_and_save(estimator, rows, out, run, mesh, log)
    if not mesh.is_first:
        return
    _conclude(estimator, table, out, metrics, log)
    if json:
        facts = {"model": str(out), "task": rows.target.task, "target": run["target"], "method": method.value}
        facts |= {} if rows.target.task != REGRESSION else {"target_transform": estimator.target_transform_.name}
        outcome = {"alpha": estimator.alpha_, "notes": [*rows.target.notes, *rows.preprocessing.notes]}
        print_json(facts | metrics | outcome)


def update(
    model: options.Model,
    table: Annotated[Path, typer.Argument(help="Rows with their targets.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the updated model; by default it replaces the old one.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Condition the model on new labels, without training.

    Pass each label once, and none of the training table: it would count twice.
    """
    from degp.tabular.model import read_rows, target_of, update_rows
    from degp.tabular.saving import check_destination, load_model, save_model

    log, place = Console(stderr=json, quiet=quiet), check_destination(out or model)
    _require_writable(place)
    loaded = load_model(model)
    moved = update_rows(loaded, read_rows(loaded, table))
    metrics = dict(loaded.metadata["metrics"])
    metrics["updated_rows"] = metrics.get("updated_rows", 0) + moved.rows
    save_model(place, loaded.estimator, target=loaded.target, metrics=metrics)
    line(f"Conditioned on {moved.rows} new labels.", log)
    unit = ", in std of the targets" if len(target_of(loaded).names) > 1 else ""
    for name, (before, after) in (
        ("std of the members' coefficients", moved.std),
        (f"epistemic std at these rows{unit}", moved.epistemic_std),
        (f"RMSE at these rows{unit}", moved.rmse),
    ):
        line(f"  {name}: {before:.4g} → {after:.4g}", log)
    line(f"  means of the members' coefficients: moved by {moved.shift:.3g} prior std", log)
    line(f"Saved: {place}", log)
    if json:
        print_json({"model": str(place), **asdict(moved), "updated_rows": metrics["updated_rows"]})


def _check_destination(out: Path, mesh: "Mesh") -> None:
    """Raises an error if the model cannot be saved there; before any work."""
    from degp.tabular.saving import check_destination

    check_destination(out)
    if mesh.is_first:
        require_writable(out.parent)  # an interrupted fit is saved next to the model
        _require_writable(out)


def _training_rows(
    table: Path, targets: list[str], task: str | None, *, drop: list[str], header: bool
) -> "TrainingRows":
    from degp.tabular import read_table
    from degp.tabular.model import prepare
    from degp.tabular.reading import numbered

    frame = read_table(table, names=None if header else numbered)
    return prepare(frame, targets, task, drop=drop, header=header)


def _train_and_save(
    estimator: "Estimator", rows: "TrainingRows", out: Path, run: dict[str, Any], mesh: "Mesh", log: Console
) -> dict[str, Any]:
    """Trains, or resumes an interrupted fit, and saves the model; returns what is saved about the training."""
    from degp.tabular.model import validation_nll
    from degp.tabular.saving import save_model

    partial = partial_of(out)
    try:
        with _resumable(mesh, partial, run) as epochs_done:
            if epochs_done:
                line(f"Resuming from epoch {epochs_done} of {partial}.", log)
            line(f"Training {estimator.config().members} networks …", log)
            estimator.set_params(checkpoint=str(partial)).fit(rows.inputs, rows.targets)
            if not mesh.is_first:
                return {}
            estimator.set_params(checkpoint=None, verbose=False)
            metrics = {
                "rows": len(rows.inputs),
                "validation_nll": validation_nll(estimator),
                "steps": estimator.history_[-1]["step"],
                "planned_steps": estimator.planned_steps_,
                "seconds": estimator.history_[-1]["seconds"],  # including those before an interruption
                "ending": estimator.ending_,
            }
            save_model(out, estimator, target=rows.target, metrics=metrics)
            return metrics
    except KeyboardInterrupt:
        if mesh.is_first:
            _report_interruption(partial)
        raise typer.Exit(130) from None


def _resumable(mesh: "Mesh", partial: Path, run: dict[str, Any]) -> AbstractContextManager[int]:
    """The number of epochs already done; the first rank owns the folder."""
    return resumable(partial, run) if mesh.is_first else nullcontext(0)


def _require_writable(model: Path) -> None:
    """Raises OSError if no model can be written to this folder, which need not exist."""
    require_writable(model if model.exists() else model.parent)


def _check_time(max_seconds: float | None) -> None:
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"--max-seconds must be positive, but it is {max_seconds:g}; leave it out for no limit")


def _widths(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"--hidden must be widths such as 100,100, but it is {text!r}")
    return tuple(int(part) for part in parts)


def _check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs an NVIDIA GPU that torch can use, but there is none; leave it out")


def _describe(rows: "TrainingRows", log: Console) -> None:
    """Prints how the target and the columns are encoded."""
    N, D = rows.inputs.shape
    line(f"Target {'. '.join(rows.target.notes)}.", log)
    line(f"{N} rows, {len(rows.preprocessing.columns)} columns, {D} features:", log)
    notes = rows.preprocessing.notes
    for note in notes[:MAX_NOTES]:
        line(f"  {note}", log)
    if len(notes) > MAX_NOTES:
        line(f"  … and {len(notes) - MAX_NOTES} more, listed in model.json", log)


def _conclude(estimator: "Estimator", table: Path, out: Path, metrics: dict[str, Any], log: Console) -> None:
    """Prints how the training went, and what to do next."""
    from degp.training import Ending

    alpha = f", α = {estimator.alpha_:g}" if estimator.alpha_ is not None else ""
    nll = "" if math.isnan(metrics["validation_nll"]) else f", held-out NLL {metrics['validation_nll']:.4g}"
    line(
        f"Trained in {metrics['seconds']:.1f} s, {metrics['steps']} steps: {estimator.config().members} networks{alpha}"
        f"{nll}.",
        log,
    )
    if hasattr(estimator, "target_transform_"):
        line(f"Target transform: {estimator.target_transform_.name}.", log)
        noise = estimator.missing_noise_
        for place, factor in zip(noise.places, noise.factors, strict=True):
            what = estimator.preprocessing_.features[place]
            line(f"Where {what}, the noise has {math.sqrt(factor):.2g} × its usual standard deviation.", log)
    if metrics["ending"] == Ending.TIME:
        line(
            f"Cut off by --max-seconds {estimator.max_seconds:g}, at step {metrics['steps']} of "
            f"{metrics['planned_steps']}: the model may be inaccurate and its uncertainty unreliable; allow more time.",
            log,
        )
    folder, source = (shlex.quote(str(path)) for path in (out, table))
    line(f"Saved: {out}", log)
    line(f"Next:  degp predict {folder} new.csv --out predictions.csv", log)
    line(f"       degp report {folder} test.csv --train {source} --out report.html", log)


def _report_interruption(partial: Path) -> None:
    if partial.exists():
        line(f"interrupted: the checkpoint is in {partial}; run the same command again to resume", notes)
    else:
        line("interrupted before the first checkpoint", notes)
