"""CIFAR-100: DE, rDE, RMS and DE-GP with ResNets, and SVHN as foreign images (the appendix's table and figure).

All as in `cifar10` but for the scale of the images and the hundred classes. `--part` takes the 486 training images that
may be at hand without the whole set: it shows that the path works, and nothing else.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from degp.data import CIFAR100_SCALE, cifar100, cifar100_part, svhn
from degp.imaging import ImageSets, Recipe, hold_out
from degp.nets import resnet
from experiments import cifar10
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
    whole_numbers,
)

METHODS = ("de", "rde", "rms", "degp")
CLASSES = 100
HELD_OUT, HELD_OUT_OF_PART = 5000, 86


def main(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path(
        "experiments/results/cifar100"
    ),
    checkpoints: CheckpointFolder = None,
    network: Annotated[str, typer.Option(help=f"One of {', '.join(cifar10.NETWORKS)}.")] = "resnet20",
    methods: Methods = ",".join(METHODS),
    seeds: Seeds = "0,1,2",
    epochs: Epochs = 200,
    part: Annotated[bool, typer.Option(help="Only the first images of the set; into OUT/part.")] = False,
    device: Device = DEVICE,
    minutes: Minutes = None,
    smoke: Smoke = False,
) -> None:
    """All methods on CIFAR-100 and against SVHN."""
    runs = [
        Run(network, cifar10.PRIOR, recipe(network, method, epochs), seed)
        for seed in whole_numbers(seeds)
        for method in chosen(methods, METHODS)
    ]
    place = Place.open(out / "part" if part else out, checkpoints, device, minutes, smoke)
    sets = made_up(classes=CLASSES) if smoke else _sets(part)
    do_runs(place, tried_out(runs, classes=CLASSES) if smoke else runs, sets.to(place.device), judged)
    write_summary(place)
    draw_curves(place, cifar10.FIGURES)


def recipe(network: str, method: str, epochs: int = 200) -> Recipe:
    """The settings of `cifar10` for a hundred classes."""
    ten_classes = cifar10.recipe(network, method, epochs)
    depth, _ = cifar10.NETWORKS[network]
    return replace(ten_classes, make_network=partial(resnet, depth, CLASSES), scale=CIFAR100_SCALE)


def _sets(part: bool) -> ImageSets:
    read, held_out = (cifar100_part, HELD_OUT_OF_PART) if part else (cifar100, HELD_OUT)
    train, validation = hold_out(read("train"), held_out)
    return ImageSets(train, validation, read("test"), svhn("test"))
