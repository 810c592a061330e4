"""CIFAR-10 under shift: context points, controls and peers, on clean, corrupted and out-of-distribution images.

All else as in `cifar10`. Choices are made with `--validation-only`, which looks at the validation images, at shifts of
them that are not reported, and at OOD images that are not reported.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments import cifar10, cifar10_sharing
from experiments.data.corruptions import CORRUPTIONS
from experiments.protocols import options
from experiments.protocols.corruption_table import overlays_at
from experiments.protocols.image_records import add_rows, alone
from experiments.protocols.image_runs import (
    Place,
    Run,
    do_runs,
    draw_curves,
    write_summary,
)
from experiments.protocols.image_smoke import smoke_runs
from experiments.protocols.shift.runs import run_by_name
from experiments.protocols.shift.scores import CorruptedImages, OnEverything, OnValidation
from experiments.protocols.shift.sets import ShiftSets, cifar10_sets
from experiments.protocols.shift.sngp import DistanceAware
from experiments.protocols.shift.summary import write_comparison

METHODS = ("rde", "chosen", "degp", "degp-a0.003-p8", "rde-context-exposed", "rde-context-seen")
SUMMARY = (
    *("accuracy", "nll", "ece", "nll_unfitted", "accuracy_corrupted", "nll_corrupted", "ece_corrupted"),
    *("auroc_svhn_mi", "auroc_svhn_entropy", "auroc_cifar100_entropy", "auroc_fashion_mnist_entropy"),
    *("risk_coverage_80", "nll_validation", "accuracy_validation", "nll_shifted", "nll_cbar"),
    *("auroc_validation_kmnist_mi", "auroc_validation_kmnist_entropy"),
)


def main(
    out: options.Out = Path("experiments/results/cifar10_shift"),
    checkpoints: options.CheckpointFolder = None,
    network: cifar10.Network = "resnet20",
    methods: Annotated[str, typer.Option(help="Names by `experiments.protocols.shift.runs`, separated by commas.")] = (
        ",".join(METHODS)
    ),
    seeds: options.Seeds = "0,1,2",
    epochs: options.Epochs = 200,
    validation_only: Annotated[
        bool, typer.Option(help="Scores to choose by, into OUT/selection; nothing that is reported is looked at.")
    ] = False,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """Methods under shift, with their scores, paired differences and one figure."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    runs = [run_by_name(name, network, epochs, seed) for seed in options.whole_numbers(seeds) for name in names]
    place = Place.open(out / "selection" if validation_only else out, checkpoints, device, minutes, smoke)
    sets = cifar10_sets(smoke, place.say).to(place.device)
    _do_runs(place, _tiny(runs) if smoke else runs, sets, validation_only, smoke)
    with alone(place.out):
        write_summary(place, SUMMARY)
        draw_curves(place, {"log temperature": cifar10.FIGURES["log temperature"]})
        if not validation_only:
            write_comparison(place)


def _do_runs(place: Place, runs: list[Run], sets: ShiftSets, validation_only: bool, smoke: bool) -> None:
    if validation_only:
        do_runs(place, runs, sets, OnValidation())
        return
    corrupted = CorruptedImages(("contrast", "pixelate") if smoke else CORRUPTIONS, overlays=overlays_at(place))
    for run in runs:
        if not place.has_time():
            place.say("the time is up; the same command resumes")
            return
        do_runs(place, [run], sets, OnEverything(corrupted, lambda rows, run=run: _keep(place, run, rows)))


def _tiny(runs: list[Run]) -> list[Run]:
    """Smoke runs; kinds of members stay apart by the names of their networks."""
    small = zip(runs, smoke_runs(runs), strict=False)  # those of the first seed
    tiny = [_with_tiny_networks(full, run) for full, run in small]
    kinds = ["heads" if run.recipe.backbone else "rank-one" if run.recipe.light else "" for run in tiny]
    return [replace(run, network=f"tiny {kind}".strip()) for run, kind in zip(tiny, kinds, strict=True)]


def _with_tiny_networks(full: Run, run: Run) -> Run:
    if isinstance(full.recipe.make_network, DistanceAware):
        return replace(run, recipe=replace(run.recipe, make_network=DistanceAware(run.recipe.make_network)))
    return cifar10_sharing.with_tiny_backbone(run) if run.recipe.backbone else run


def _keep(place: Place, run: Run, rows: list[dict[str, Any]]) -> None:
    """Adds a run's rows to corruptions.json."""
    if place.mesh.is_first:
        add_rows(place.out / "corruptions.json", run.facts, rows)
