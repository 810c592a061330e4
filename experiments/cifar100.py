"""CIFAR-100: DE, rDE, RMS and DE-GP with ResNets, and SVHN as out-of-distribution images (the paper's appendix).

All as in `cifar10` except the scale of the images and the hundred classes. `--part` takes the 486 training images that
may be available without the whole set: it only shows that the code runs.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from degp.methods import Kind
from degp.nets import resnet
from degp.vision import Recipe
from degp.vision.augmentation import CIFAR100_SCALE
from experiments import cifar10
from experiments.data import cifar100, cifar100_part, svhn
from experiments.protocols import options
from experiments.protocols.image_runs import Place, Run, run_experiment
from experiments.protocols.image_sets import ImageSets, hold_out
from experiments.protocols.image_smoke import smoke_runs, synthetic_sets

CLASSES = 100
HELD_OUT, HELD_OUT_OF_PART = 5000, 86


def main(
    out: options.Out = Path("experiments/results/cifar100"),
    checkpoints: options.CheckpointFolder = None,
    network: cifar10.Network = "resnet20",
    methods: options.Methods = ",".join(Kind),
    seeds: options.Seeds = "0,1,2",
    epochs: options.Epochs = 200,
    part: Annotated[bool, typer.Option(help="Only the first images of the set; into OUT/part.")] = False,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """All methods on CIFAR-100, with SVHN out of distribution."""
    runs = [
        Run(network, cifar10.PRIOR, recipe(network, method, epochs), seed)
        for seed in options.whole_numbers(seeds)
        for method in options.chosen(methods, list(Kind))
    ]
    place = Place.open(out / "part" if part else out, checkpoints, device, minutes, smoke)
    sets = synthetic_sets(classes=CLASSES) if smoke else _sets(part)
    run_experiment(place, smoke_runs(runs, classes=CLASSES) if smoke else runs, sets, cifar10.FIGURES)


def recipe(network: str, method: str, epochs: int = 200) -> Recipe:
    """The settings of `cifar10` for a hundred classes."""
    ten_classes = cifar10.recipe(network, method, epochs)
    depth, _ = cifar10.NETWORKS[network]
    return replace(ten_classes, make_network=partial(resnet, depth, CLASSES), scale=CIFAR100_SCALE)


def _sets(part: bool) -> ImageSets:
    read, held_out = (cifar100_part, HELD_OUT_OF_PART) if part else (cifar100, HELD_OUT)
    train, validation = hold_out(read("train"), held_out)
    return ImageSets(train, validation, read("test"), svhn("test"))
