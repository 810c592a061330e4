"""Fashion-MNIST: error against ensemble size and against uncertainty, with MNIST as foreign images.

Ten LeNets, 24 epochs, SGD at 0.1 without momentum, cosine, batches of 64; the weights (α of DE-GP, the penalties of rDE
and RMS) are all 0.1, as in the authors' code. Unlike there, 5,000 of the 60,000 training images are held out for every
method's temperature, and the test set is for testing alone.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from degp.data import FASHION_MNIST_SCALE, fashion_mnist, mnist
from degp.imaging import Cosine, ImageSets, PriorNetworks, Recipe, Trained, by_size, hold_out
from degp.nets import lenet, lenet_features
from experiments.image_runs import (
    Findings,
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

METHODS: dict[str, dict[str, Any]] = {
    "de": {"method": "de", "beta": 0.0},
    "rde": {"method": "rde", "beta": 0.1},
    "rms": {"method": "rms", "beta": 0.1},
    "degp": {"method": "degp", "alpha": 0.1, "beta": 0.0},
}
FIGURES = {
    "error by size": ("members, of those trained together", "test error"),
    "nll by size": ("members, of those trained together", "test NLL"),
    "error by uncertainty": ("mutual information up to, as a share of the largest", "error, MNIST wrong"),
}
HELD_OUT = 5000


def main(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path(
        "experiments/results/fmnist"
    ),
    checkpoints: CheckpointFolder = None,
    methods: Methods = ",".join(METHODS),
    seeds: Seeds = "0,1,2",
    epochs: Epochs = 24,
    members: Annotated[int, typer.Option(min=1, help="Networks in each ensemble.")] = 10,
    device: Device = DEVICE,
    minutes: Minutes = None,
    smoke: Smoke = False,
) -> None:
    """DE, rDE, RMS and DE-GP on Fashion-MNIST, by ensemble size, and against MNIST."""
    runs = [
        Run("lenet", "lenet", recipe(method, epochs, members), seed)
        for seed in whole_numbers(seeds)
        for method in chosen(methods, METHODS)
    ]
    place = Place.open(out, checkpoints, device, minutes, smoke)
    sets = made_up(channels=1, size=28) if smoke else _sets()
    do_runs(place, tried_out(runs, channels=1) if smoke else runs, sets.to(place.device), _judge)
    write_summary(place)
    draw_curves(place, FIGURES)


def recipe(method: str, epochs: int = 24, members: int = 10) -> Recipe:
    """The authors' settings for one of `METHODS`."""
    shared = Recipe(
        lenet,
        PriorNetworks(lenet_features),
        FASHION_MNIST_SCALE,
        members=members,
        epochs=epochs,
        batch_size=64,
        momentum=0.0,
        schedule=Cosine(),
        warm_up=0,
        augmentation=None,
    )
    return replace(shared, **METHODS[method])


def _sets() -> ImageSets:
    train, validation = hold_out(fashion_mnist("train"), HELD_OUT)
    return ImageSets(train, validation, fashion_mnist("test"), mnist("test"))


def _judge(trained: Trained, sets: ImageSets) -> Findings:
    """With curves over the number of members: the first 1, 2, … of those that were trained together."""
    findings = judged(trained, sets)
    rows = by_size(trained, sets)
    sizes = [row["size"] for row in rows]
    curves = {
        "error by size": (sizes, [1 - row["accuracy"] for row in rows]),
        "nll by size": (sizes, [row["nll"] for row in rows]),
    }
    return Findings(findings.scores, findings.curves | curves)
