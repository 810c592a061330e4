"""CIFAR-10 under 19 corruptions at five severities: accuracy, NLL and ECE of the members that `cifar10` trained.

The corruptions are computed on the device from the test images; the benchmark's files are not needed. Frost needs its
overlays, and is omitted without them. Temperatures are fitted on clean images; the paper has none for the baselines, so
uncalibrated scores are recorded too.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from degp.report import environment, save_results
from degp.report.figures import save_figure
from degp.report.results import require_fields
from experiments import cifar10, cifar10_sharing
from experiments.data.corruptions import CORRUPTIONS
from experiments.protocols import options
from experiments.protocols.corruption_table import corruption_table, overlays_at
from experiments.protocols.image_figures import box_panels
from experiments.protocols.image_names import display, label
from experiments.protocols.image_records import Records, alone, finite_or_none
from experiments.protocols.image_runs import Place, Run, records_in, write_table

SCORES = ("accuracy", "nll", "ece", "nll_unfitted", "ece_unfitted", "nll_calibrated", "ece_calibrated")
DRAWN = ("accuracy", "nll", "ece", "nll_unfitted", "ece_unfitted")
SHARED = "shared"
FOLDER = Path("experiments/results")


def main(
    out: options.Out = FOLDER / "cifar10_corruptions",
    checkpoints: Annotated[
        Path | None, typer.Option(help="Where `cifar10` or `cifar10_sharing` saved its members.")
    ] = None,
    network: Annotated[str, typer.Option(help=f"One of {', '.join(cifar10.NETWORKS)}, {SHARED}.")] = "resnet20",
    methods: Annotated[str | None, typer.Option(help="Names, separated by commas; all by default.")] = None,
    seeds: options.Seeds = "0,1,2",
    epochs: options.Epochs = 200,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """Every method of `cifar10`, or of `cifar10_sharing` as network `shared`, on corrupted images."""
    source = cifar10_sharing if options.one_of(network, (*cifar10.NETWORKS, SHARED)) == SHARED else cifar10
    if methods is None:
        methods = "de,degp" if smoke else ",".join(source.METHODS)
    runs = _planned(network, methods, seeds, epochs, smoke)
    name = source.__name__.rpartition(".")[2]
    if smoke:
        checkpoints = out / "trained" / "smoke" / "checkpoints"
    place = Place.open(out, checkpoints or FOLDER / name / "checkpoints", device, minutes, smoke)
    require_fields(place.out / "metrics.json", records_in(place), ("corruption", "severity"))
    if smoke:
        source.main(out=out / "trained", methods=methods, seeds=seeds, smoke=True, device=device)
    given = {"network": network, "methods": methods, "seeds": seeds, "epochs": epochs}
    ready = _trained(place, runs, _trainer(name, given, place.checkpoints))
    _do_runs(place, ready, ("contrast", "brightness") if smoke else CORRUPTIONS, smoke)
    _figures(place)
    _write_summary(place)


def _planned(network: str, methods: str, seeds: str, epochs: int, smoke: bool) -> list[Run]:
    if network == SHARED:
        return cifar10_sharing.planned(methods, seeds, epochs, smoke)
    return cifar10.planned(network, methods, seeds, epochs, smoke)


def _trained(place: Place, runs: Sequence[Run], trainer: str) -> list[Run]:
    """The runs that are not evaluated yet and whose members are saved; `trainer` is the command that trains others."""
    wanted = [run for run in runs if place.lacks(run)]
    trained = [run for run in wanted if place.has_members(run)]
    missing = (
        f"{place.checkpoints} must have the members of every run, but those of {len(wanted) - len(trained)} among "
        f"{len(runs)} are missing; train them first: {trainer}"
    )
    if wanted and not trained:
        raise ValueError(missing)
    if len(trained) < len(wanted):
        place.say(missing)
    return trained


def _trainer(name: str, options: Mapping[str, Any], checkpoints: Path) -> str:
    """The command that trains the members."""
    given = {**options, "checkpoints": checkpoints}
    words = [word for key, value in given.items() if value != SHARED for word in (f"--{key}", str(value))]
    return shlex.join(["python", "-m", "experiments", name, *words])


def _do_runs(place: Place, runs: Sequence[Run], types: Sequence[str], smoke: bool) -> None:
    """Evaluates each run, and saves after it."""
    sets, overlays = cifar10.image_sets(smoke).to(place.device), overlays_at(place)
    where = {key: environment()[key] for key in ("commit", "device")}
    for run in runs:
        if not place.has_time():
            place.say("the time is up; the same command resumes")
            return
        place.say(f"{label(run.facts)}, {display(run.network)}, seed {run.seed}")
        rows = corruption_table(place.members_of(run), sets, types=types, overlays=overlays)
        if place.mesh.is_first:
            config = run.recipe.describe() | {"types": list(types), "frost": overlays is not None}
            with alone(place.out):
                records = records_in(place) + [{**run.facts, **finite_or_none(row), **where} for row in rows]
                save_results(place.out, config=config, records=records)


def _figures(place: Place) -> None:
    records = [r for r in records_in(place) if not cifar10.is_superseded(r)] if place.mesh.is_first else []
    for score in DRAWN:
        panels = {display(network): _boxes(records, network, score) for network in _distinct(records, "network")}
        panels = {network: boxes for network, boxes in panels.items() if boxes}  # older records have fewer scores
        if panels:
            figure = box_panels(panels, x_label="severity (0: clean)", y_label=display(score))
            save_figure(figure, place.out / f"{score}.png")


def _boxes(records: Records, network: str, score: str) -> dict[str, dict[int, list[float]]]:
    """Label ↦ severity ↦ the score per type, averaged over seeds."""
    cells: dict[str, dict[int, dict[str, list[float]]]] = {}
    for record in records:
        if record["network"] == network and record.get(score) is not None:
            by_type = cells.setdefault(display(label(record)), {}).setdefault(record["severity"], {})
            by_type.setdefault(record["corruption"], []).append(record[score])
    return {
        method: {severity: [mean(values) for values in types.values()] for severity, types in severities.items()}
        for method, severities in cells.items()
    }


def _write_summary(place: Place) -> None:
    """`summary.md`: each score by severity, averaged over types and seeds; also printed."""
    records = records_in(place) if place.mesh.is_first else []
    severities = sorted({record["severity"] for record in records})
    rows = []
    for network in _distinct(records, "network"):
        for score in SCORES:
            for method, by_severity in _boxes(records, network, score).items():
                means = [mean(by_severity.get(severity, [math.nan])) for severity in severities]
                corrupted = mean(mean(values) for severity, values in by_severity.items() if severity)
                cells = [f"{value:.4f}" for value in (*means, corrupted)]
                rows.append([display(network), method, display(score), *cells])
    if rows:
        write_table(place, ["network", "method", "score", *map(str, severities), "all corrupted"], rows)


def _distinct(records: Records, key: str) -> list[str]:
    return list(dict.fromkeys(record[key] for record in records))
