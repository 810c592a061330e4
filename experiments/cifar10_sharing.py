"""CIFAR-10 with weight sharing: ten heads on one ResNet-20.

Heads are MLPs 64-64-64-10, α = 0.05, and the learning rate of trunk and heads is 0.01. The authors' code has a nominal
0.1 for the heads (`--heads-rate 0.1`), but its warm-up sets both to 0.01 and never restores it; by the NLL of the
validation images 0.01 is better for rDE and DE-GP. All else as in `cifar10`.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from degp.imaging import Recipe, Trunk
from degp.nets import mlp, resnet_features
from experiments import cifar10
from experiments.cifar10_prior import PRIORS
from experiments.image_runs import (
    Place,
    Run,
    do_runs,
    draw_curves,
    judged,
    tiny_features,
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
    Weight,
    chosen,
    one_of,
    require_weight,
    whole_numbers,
)

METHODS: dict[str, dict[str, Any]] = {
    "de": {"method": "de", "beta": 0.0},
    "rde": {"method": "rde", "beta": 0.1},
    "degp": {"method": "degp", "alpha": 0.05, "beta": 0.1},
}
NETWORK = "resnet20 trunk"
TRUNK_RATE, HEADS_RATE = 0.01, 0.01


def main(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path(
        "experiments/results/cifar10_sharing"
    ),
    checkpoints: CheckpointFolder = None,
    methods: Methods = ",".join(METHODS),
    alpha: Weight = METHODS["degp"]["alpha"],
    prior: Annotated[str, typer.Option(help="Of DE-GP, as `cifar10_prior` has them.")] = cifar10.PRIOR,
    heads_rate: Annotated[float, typer.Option(callback=require_weight, help="The heads' learning rate.")] = HEADS_RATE,
    seeds: Seeds = "0,1,2",
    epochs: Epochs = 200,
    device: Device = DEVICE,
    minutes: Minutes = None,
    smoke: Smoke = False,
) -> None:
    """DE, rDE and DE-GP whose members share a trunk."""
    runs = planned(methods, seeds, epochs, smoke, alpha=alpha, prior=prior, heads_rate=heads_rate)
    place = Place.open(out, checkpoints, device, minutes, smoke)
    do_runs(place, runs, cifar10.image_sets(smoke).to(place.device), judged)
    write_summary(place)
    draw_curves(place, cifar10.FIGURES)


def planned(
    methods: str,
    seeds: str,
    epochs: int,
    smoke: bool,
    *,
    alpha: float = METHODS["degp"]["alpha"],
    prior: str = cifar10.PRIOR,
    heads_rate: float = HEADS_RATE,
) -> list[Run]:
    """The runs that the command line asks for, seed by seed."""
    networks = PRIORS[one_of(prior, PRIORS, "--prior")]
    settings: dict[str, Any] = {"alpha": alpha, "prior": networks, "learning_rate": heads_rate}
    network = NETWORK if heads_rate == HEADS_RATE else f"{NETWORK}, heads at {heads_rate:g}"
    runs = [
        Run(network, prior, replace(recipe(method, epochs), **settings), seed)
        for seed in whole_numbers(seeds)
        for method in chosen(methods, METHODS)
    ]
    return [_with_tiny_trunk(run) for run in tried_out(runs)] if smoke else runs


def recipe(method: str, epochs: int = 200) -> Recipe:
    """The settings of `METHODS`, with a ResNet-20 as trunk."""
    return replace(
        cifar10.recipe("resnet20", "degp", epochs),
        make_network=partial(mlp, 64, (64, 64), 10),
        learning_rate=HEADS_RATE,
        trunk=Trunk(partial(resnet_features, 20), TRUNK_RATE),
        **METHODS[method],
    )


def _with_tiny_trunk(run: Run) -> Run:
    trunk = Trunk(tiny_features, TRUNK_RATE)
    return replace(run, recipe=replace(run.recipe, make_network=partial(mlp, 16, (8,), 10), trunk=trunk))
