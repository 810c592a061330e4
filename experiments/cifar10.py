"""CIFAR-10: DE, rDE, RMS and DE-GP with ResNets, and SVHN as foreign images (the paper's Table 1).

SGD with momentum 0.9 at 0.1, ×0.1 at half and three quarters of 200 epochs, five epochs of linear warm-up, batches of
128, random crops and flips. α = 0.01, as in the authors' final commands (the paper says 0.1), β = 0.1, rDE 0.1, RMS
0.01. Unlike the authors' code, 5,000 training images are held out for every method's temperature, and that of DE-GP
starts at 1 where theirs starts at 0.1: with outputs ten times too large the first epochs do harm.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from degp.data import CIFAR10_SCALE, cifar10, svhn
from degp.imaging import ImageSets, PriorNetworks, Recipe, hold_out
from degp.nets import lite_resnet_features, resnet
from experiments.image_runs import (
    Place,
    Run,
    do_runs,
    draw_curves,
    judged,
    made_up,
    tried_out,
    write_summary,
)
from experiments.options import (
    DEVICE,
    CheckpointFolder,
    Device,
    Epochs,
    Methods,
    Minutes,
    Seeds,
    Smoke,
    chosen,
    one_of,
    whole_numbers,
)

METHODS: dict[str, dict[str, Any]] = {
    "de": {"method": "de", "beta": 0.0},
    "rde": {"method": "rde", "beta": 0.1},
    "rms": {"method": "rms", "beta": 0.01},
    "degp": {"method": "degp", "alpha": 0.01, "beta": 0.1},
    "degp0": {"method": "degp", "alpha": 0.01, "beta": 0.0},
}
NETWORKS = {"resnet20": (20, 10), "resnet56": (56, 10), "resnet110": (110, 5)}  # depth and members
PRIOR = "lite resnet20"
FIGURES = {
    "weight norm": ("epoch", "mean norm of a member's weights"),
    "log temperature": ("epoch", "log₁₀ of the learned temperature"),
    "error by uncertainty": ("mutual information up to, as a share of the largest", "error, SVHN wrong"),
}
HELD_OUT = 5000


def main(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path(
        "experiments/results/cifar10"
    ),
    checkpoints: CheckpointFolder = None,
    network: Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}.")] = "resnet20",
    methods: Methods = ",".join(METHODS),
    seeds: Seeds = "0,1,2",
    epochs: Epochs = 200,
    device: Device = DEVICE,
    minutes: Minutes = None,
    smoke: Smoke = False,
) -> None:
    """All methods on CIFAR-10 and against SVHN; `degp0` is DE-GP with β = 0."""
    runs = planned(network, methods, seeds, epochs, smoke)
    place = Place.open(out, checkpoints, device, minutes, smoke)
    do_runs(place, runs, image_sets(smoke).to(place.device), judged)
    write_summary(place)
    draw_curves(place, FIGURES)


def planned(network: str, methods: str, seeds: str, epochs: int, smoke: bool) -> list[Run]:
    """The runs that the command line asks for, seed by seed."""
    runs = [
        Run(network, PRIOR, recipe(network, method, epochs), seed)
        for seed in whole_numbers(seeds)
        for method in chosen(methods, METHODS)
    ]
    return tried_out(runs) if smoke else runs


def recipe(network: str, method: str, epochs: int = 200) -> Recipe:
    """The settings of `METHODS` for one of `NETWORKS`."""
    depth, members = NETWORKS[one_of(network, NETWORKS)]
    prior = PriorNetworks(partial(lite_resnet_features, 20))
    shared = Recipe(partial(resnet, depth, 10), prior, CIFAR10_SCALE, members=members, epochs=epochs)
    return replace(shared, **METHODS[method])


def image_sets(smoke: bool) -> ImageSets:
    """45,000 images to train on, 5,000 to fit the temperature on, the test set, and SVHN's."""
    if smoke:
        return made_up()
    train, validation = hold_out(cifar10("train"), HELD_OUT)
    return ImageSets(train, validation, cifar10("test"), svhn("test"))
