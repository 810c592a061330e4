"""CIFAR-10: DE-GP by α, with ResNet-20 and β = 0.1 (the paper's ablation of α); all else as in `cifar10`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from experiments import cifar10
from experiments.protocols import options
from experiments.protocols.image_runs import Place, Run, run_experiment
from experiments.protocols.image_smoke import smoke_runs


def main(
    out: options.Out = Path("experiments/results/cifar10_alpha"),
    checkpoints: options.CheckpointFolder = None,
    alphas: Annotated[str, typer.Option(help="α as in the paper; numbers, separated by commas.")] = (
        "0.005,0.01,0.05,0.1"
    ),
    network: cifar10.Network = "resnet20",
    seeds: options.Seeds = "0,1,2",
    epochs: options.Epochs = 200,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """DE-GP for each α."""
    shared = cifar10.recipe(network, "degp", epochs)
    runs = [
        Run(network, cifar10.PRIOR, replace(shared, alpha=alpha), seed)
        for seed in options.whole_numbers(seeds)
        for alpha in options.weights(alphas)
    ]
    place = Place.open(out, checkpoints, device, minutes, smoke)
    run_experiment(place, smoke_runs(runs) if smoke else runs, cifar10.image_sets(smoke), cifar10.FIGURES)
