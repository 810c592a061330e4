"""CIFAR-10: DE, rDE, RMS and DE-GP with ResNets, and SVHN as out-of-distribution images (the paper's Table 1).

SGD with momentum 0.9 at 0.1, ×0.1 at half and three quarters of 200 epochs, five epochs of linear warm-up, batches of
128, random crops and flips. α = 0.01, as in the authors' final commands (the paper says 0.1), β = 0.1, rDE 0.1, RMS
0.01. Unlike the authors' code, 5,000 training images are held out for every method's temperature, and that of DE-GP
starts at 1 where theirs starts at 0.1: with outputs ten times too large the first epochs do harm.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from degp.methods import Kind
from degp.nets import lite_resnet_features, resnet
from degp.vision import PriorNetworks, Recipe
from degp.vision.augmentation import CIFAR10_SCALE
from experiments.data import cifar10, svhn
from experiments.protocols import options
from experiments.protocols.image_runs import Place, Run, run_experiment
from experiments.protocols.image_sets import ImageSets, hold_out
from experiments.protocols.image_smoke import smoke_runs, synthetic_sets

METHODS: dict[str, dict[str, Any]] = {
    "de": {"method": Kind.DE, "beta": 0.0},
    "rde": {"method": Kind.RDE, "beta": 0.1},
    "rms": {"method": Kind.RMS, "beta": 0.01},
    "degp": {"method": Kind.DEGP, "alpha": 0.01, "beta": 0.1},
    "degp0": {"method": Kind.DEGP, "alpha": 0.01, "beta": 0.0},
}
NETWORKS = {"resnet20": (20, 10), "resnet56": (56, 10), "resnet110": (110, 5)}  # depth and members
PRIOR = "lite resnet20"
FIGURES = {
    "weight norm": ("epoch", "mean weight norm per member"),
    "log temperature": ("epoch", "log₁₀ of the learned temperature"),
    "error by uncertainty": ("threshold on normalised mutual information", "error rate, SVHN counted as errors"),
}
HELD_OUT = 5000
Network = Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}.")]


def main(
    out: options.Out = Path("experiments/results/cifar10"),
    checkpoints: options.CheckpointFolder = None,
    network: Network = "resnet20",
    methods: options.Methods = ",".join(METHODS),
    seeds: options.Seeds = "0,1,2",
    epochs: options.Epochs = 200,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """All methods on CIFAR-10, with SVHN out of distribution; `degp0` is DE-GP with β = 0."""
    runs = planned(network, methods, seeds, epochs, smoke)
    place = Place.open(out, checkpoints, device, minutes, smoke)
    run_experiment(place, runs, image_sets(smoke), FIGURES)


def planned(network: str, methods: str, seeds: str, epochs: int, smoke: bool) -> list[Run]:
    """The runs that the command line asks for, seed by seed."""
    runs = [
        Run(network, PRIOR, recipe(network, method, epochs), seed)
        for seed in options.whole_numbers(seeds)
        for method in options.chosen(methods, METHODS)
    ]
    return smoke_runs(runs) if smoke else runs


def recipe(network: str, method: str, epochs: int = 200) -> Recipe:
    """The settings of `METHODS` for one of `NETWORKS`."""
    depth, members = NETWORKS[options.one_of(network, NETWORKS)]
    prior = PriorNetworks(partial(lite_resnet_features, 20), num_draws=10)
    plain = {"members": members, "epochs": epochs, "alpha": 0.01, "context": None}
    shared = Recipe(partial(resnet, depth, 10), prior, CIFAR10_SCALE, **plain)
    return replace(shared, **METHODS[method])


def image_sets(smoke: bool) -> ImageSets:
    """45,000 training images, 5,000 validation images, the test set, and SVHN's."""
    if smoke:
        return synthetic_sets()
    train, validation = hold_out(cifar10("train"), HELD_OUT)
    return ImageSets(train, validation, cifar10("test"), svhn("test"))


def is_superseded(facts: Mapping[str, Any]) -> bool:
    """Whether DE-GP's temperature does not start at 1, as it once did; such records are in no comparison."""
    return facts.get("temperature_start") not in (None, 1.0)
