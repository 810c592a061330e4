"""Fashion-MNIST: error against ensemble size and uncertainty, with MNIST as out-of-distribution images.

Ten LeNets, 24 epochs, SGD at 0.1 without momentum, cosine, batches of 64; the weights (α of DE-GP, the penalties of rDE
and RMS) are all 0.1, as in the authors' code. Unlike there, 5,000 of the 60,000 training images are held out for every
method's temperature, and the test set is for testing alone.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from degp.methods import Kind
from degp.nets import lenet, lenet_features
from degp.vision import Cosine, PriorNetworks, Recipe, Trained
from degp.vision.augmentation import FASHION_MNIST_SCALE
from experiments.data import fashion_mnist, mnist
from experiments.protocols import options
from experiments.protocols.assessment import by_size
from experiments.protocols.image_runs import Evaluation, Place, Run, evaluate, run_experiment
from experiments.protocols.image_sets import ImageSets, hold_out
from experiments.protocols.image_smoke import smoke_runs, synthetic_sets

METHODS: dict[str, dict[str, Any]] = {
    "de": {"method": Kind.DE, "beta": 0.0},
    "rde": {"method": Kind.RDE, "beta": 0.1},
    "rms": {"method": Kind.RMS, "beta": 0.1},
    "degp": {"method": Kind.DEGP, "alpha": 0.1, "beta": 0.0},
}
FIGURES = {
    "error by size": ("ensemble size (members trained together)", "test error rate"),
    "nll by size": ("ensemble size (members trained together)", "test NLL"),
    "error by uncertainty": ("threshold on normalised mutual information", "error rate, MNIST counted as errors"),
}
HELD_OUT = 5000


def main(
    out: options.Out = Path("experiments/results/fmnist"),
    checkpoints: options.CheckpointFolder = None,
    methods: options.Methods = ",".join(METHODS),
    seeds: options.Seeds = "0,1,2",
    epochs: options.Epochs = 24,
    members: Annotated[int, typer.Option(min=1, help="Networks per ensemble.")] = 10,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """DE, rDE, RMS and DE-GP on Fashion-MNIST, by ensemble size, with MNIST out of distribution."""
    runs = [
        Run("lenet", "lenet", recipe(method, epochs, members), seed)
        for seed in options.whole_numbers(seeds)
        for method in options.chosen(methods, METHODS)
    ]
    place = Place.open(out, checkpoints, device, minutes, smoke)
    sets = synthetic_sets(channels=1, size=28) if smoke else _sets()
    run_experiment(place, smoke_runs(runs, channels=1) if smoke else runs, sets, FIGURES, evaluate_by_size)


def recipe(method: str, epochs: int = 24, members: int = 10) -> Recipe:
    """The authors' settings for one of `METHODS`."""
    shared = Recipe(
        lenet,
        PriorNetworks(lenet_features, num_draws=10),
        FASHION_MNIST_SCALE,
        members=members,
        epochs=epochs,
        batch_size=64,
        momentum=0.0,
        schedule=Cosine(),
        warm_up=0,
        augmentation=None,
        context=None,
    )
    return replace(shared, **METHODS[method])


def evaluate_by_size(trained: Trained, sets: ImageSets) -> Evaluation:
    """`evaluate`, with curves over the first 1, 2, … of the members, which were trained together."""
    evaluation, rows = evaluate(trained, sets), by_size(trained, sets)
    sizes = [row["size"] for row in rows]
    curves = {
        "error by size": (sizes, [1 - row["accuracy"] for row in rows]),
        "nll by size": (sizes, [row["nll"] for row in rows]),
    }
    return Evaluation(evaluation.scores, evaluation.curves | curves)


def _sets() -> ImageSets:
    train, validation = hold_out(fashion_mnist("train"), HELD_OUT)
    return ImageSets(train, validation, fashion_mnist("test"), mnist("test"))
