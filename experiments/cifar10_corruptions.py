"""CIFAR-10 under 19 corruptions at five severities: accuracy, NLL and ECE of what `cifar10` trained.

The corruptions are made on the device from the test images: the benchmark's files are not needed. Frost needs its
overlays, and is left out where they are not. Temperatures are fitted on clean images; the paper has none for the
baselines, and so the scores without them are recorded too.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer
from torch import Tensor

from degp.data import DataSetError
from degp.data.corruptions import CORRUPTIONS, frost_overlays
from degp.files import new_file
from degp.imaging import corruption_table, load_kept
from degp.imaging.figures import box_panels
from degp.report import environment, save_results
from degp.report.figures import save_figure
from experiments import cifar10, cifar10_sharing
from experiments.image_runs import (
    DEVICE,
    Device,
    Methods,
    Minutes,
    Place,
    Records,
    Run,
    Seeds,
    Smoke,
    known,
    label,
    records_in,
)

SCORES = {
    "accuracy": "accuracy",
    "nll": "NLL, temperature fitted",
    "ece": "ECE, temperature fitted",
    "nll_unfitted": "NLL as trained",
    "ece_unfitted": "ECE as trained",
    "nll_calibrated": "NLL, two temperatures fitted",
    "ece_calibrated": "ECE, two temperatures fitted",
}
SHARED = "shared"
FOLDER = Path("experiments/results")


def main(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = FOLDER / "cifar10_corruptions",
    checkpoints: Annotated[
        Path | None, typer.Option(help="Where `cifar10` or `cifar10_sharing` left its members.")
    ] = None,
    network: Annotated[str, typer.Option(help=f"One of {', '.join(cifar10.NETWORKS)}, {SHARED}.")] = "resnet20",
    methods: Methods = "",
    seeds: Seeds = "0,1,2",
    epochs: int = 200,
    device: Device = DEVICE,
    minutes: Minutes = None,
    smoke: Smoke = False,
) -> None:
    """Every method of `cifar10`, or of `cifar10_sharing` as network `shared`, on corrupted images."""
    if smoke:
        cifar10.main(out=out / "trained", methods="de,degp", smoke=True, device=device)
        checkpoints, methods = out / "trained" / "smoke" / "checkpoints", "de,degp"
    source = "cifar10_sharing" if network == SHARED else "cifar10"
    place = Place.open(out, checkpoints or FOLDER / source / "checkpoints", device, minutes, smoke)
    runs = _planned(network, methods, seeds, epochs, smoke)
    _do_runs(place, runs, _types(smoke), smoke)
    _figures(place)
    _write_summary(place)


def _planned(network: str, methods: str, seeds: str, epochs: int, smoke: bool) -> list[Run]:
    if network == SHARED:
        return cifar10_sharing.planned(methods or ",".join(cifar10_sharing.METHODS), seeds, epochs, smoke)
    return cifar10.planned(network, methods or ",".join(cifar10.METHODS), seeds, epochs, smoke)


def _types(smoke: bool) -> tuple[str, ...]:
    return ("contrast", "brightness") if smoke else CORRUPTIONS


def _do_runs(place: Place, runs: Sequence[Run], types: Sequence[str], smoke: bool) -> None:
    """Judges the runs that are not in metrics.json yet, and saves after each."""
    sets = cifar10.image_sets(smoke).to(place.device)
    overlays = _overlays(place)
    where = {key: environment()[key] for key in ("commit", "device")}
    for run in runs:
        folder = place.checkpoints / run.name
        if not place.lacks(run):
            continue
        if not place.keeps(run):
            place.say(f"{label(run.facts)}, seed {run.seed}: no members in {folder}; train them first")
            continue
        if not place.has_time():
            place.say("the time is up; the same command goes on from there")
            return
        place.say(f"{label(run.facts)}, {run.network}, seed {run.seed}")
        trained = load_kept(folder, run.recipe, seed=run.seed, device=place.device, mesh=place.mesh)
        rows = corruption_table(trained, sets, types=types, overlays=overlays)
        if place.mesh.is_first:
            records = records_in(place) + [{**run.facts, **known(row), **where} for row in rows]
            config = run.recipe.describe() | {"types": list(types), "frost": overlays is not None}
            save_results(place.out, config=config, records=records)


def _overlays(place: Place) -> tuple[Tensor, ...] | None:
    try:
        return tuple(overlay.to(place.device) for overlay in frost_overlays())
    except DataSetError as reason:
        place.say(f"frost is left out: {reason}")
        return None


def _figures(place: Place) -> None:
    records = records_in(place) if place.mesh.is_first else []
    for score, name in SCORES.items():
        panels = {network: _boxes(records, network, score) for network in _distinct(records, "network")}
        panels = {network: boxes for network, boxes in panels.items() if boxes}  # older records have fewer scores
        if panels:
            figure = box_panels(panels, x_label="severity, 0 is clean; boxes over the types", y_label=name)
            save_figure(figure, place.out / f"{score}.png")


def _boxes(records: Records, network: str, score: str) -> dict[str, dict[int, list[float]]]:
    """Label ↦ severity ↦ the score of each type, its mean over the seeds."""
    cells: dict[str, dict[int, dict[str, list[float]]]] = {}
    for record in records:
        if record["network"] == network and record.get(score) is not None:
            by_type = cells.setdefault(label(record), {}).setdefault(record["severity"], {})
            by_type.setdefault(record["corruption"], []).append(record[score])
    return {
        method: {severity: [mean(values) for values in types.values()] for severity, types in severities.items()}
        for method, severities in cells.items()
    }


def _write_summary(place: Place) -> None:
    """`summary.md`: each score by severity, its mean over the types (and seeds); also on the screen."""
    records = records_in(place) if place.mesh.is_first else []
    severities = sorted({record["severity"] for record in records})
    if not records:
        return
    lines = [f"| network | method | score | {' | '.join(map(str, severities))} | all corrupted |"]
    lines.append("|---" * (len(severities) + 4) + "|")
    for network in _distinct(records, "network"):
        for score in SCORES:
            for method, by_severity in _boxes(records, network, score).items():
                means = [mean(by_severity.get(severity, [math.nan])) for severity in severities]
                corrupted = [mean(values) for severity, values in by_severity.items() if severity]
                cells = " | ".join(f"{value:.4f}" for value in (*means, mean(corrupted)))
                lines.append(f"| {network} | {method} | {score} | {cells} |")
    text = "\n".join(lines) + "\n"
    with new_file(place.out / "summary.md") as draft:
        draft.write_text(text, encoding="utf-8")
    typer.echo(text)


def _distinct(records: Records, key: str) -> list[str]:
    return list(dict.fromkeys(record[key] for record in records))
