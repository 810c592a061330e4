"""CIFAR-10: DE-GP by α, with ResNet-20 and β = 0.1 (the paper's ablation of α); all else as in `cifar10`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from experiments import cifar10
from experiments.image_runs import (
    Place,
    Run,
    do_runs,
    draw_curves,
    judged,
    tried_out,
    write_summary,
)
from experiments.options import DEVICE, CheckpointFolder, Device, Epochs, Minutes, Seeds, Smoke, weights, whole_numbers


def main(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path(
        "experiments/results/cifar10_alpha"
    ),
    checkpoints: CheckpointFolder = None,
    alphas: Annotated[str, typer.Option(help="Numbers, separated by commas.")] = "0.005,0.01,0.05,0.1",
    network: Annotated[str, typer.Option(help=f"One of {', '.join(cifar10.NETWORKS)}.")] = "resnet20",
    seeds: Seeds = "0,1,2",
    epochs: Epochs = 200,
    device: Device = DEVICE,
    minutes: Minutes = None,
    smoke: Smoke = False,
) -> None:
    """DE-GP for each α."""
    shared = cifar10.recipe(network, "degp", epochs)
    runs = [
        Run(network, cifar10.PRIOR, replace(shared, alpha=alpha), seed)
        for seed in whole_numbers(seeds)
        for alpha in weights(alphas)
    ]
    place = Place.open(out, checkpoints, device, minutes, smoke)
    do_runs(place, tried_out(runs) if smoke else runs, cifar10.image_sets(smoke).to(place.device), judged)
    write_summary(place)
    draw_curves(place, cifar10.FIGURES)
