"""CIFAR-10 with weight sharing: ten heads on one ResNet-20.

Heads are MLPs 64-64-64-10, α = 0.05, and the learning rate of backbone and heads is 0.01. The authors' code has a
nominal 0.1 for the heads (`--heads-rate 0.1`), but its warm-up sets both to 0.01 and never restores it; by validation
NLL 0.01 is better for rDE and DE-GP. All else as in `cifar10`.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from degp.methods import Kind
from degp.nets import mlp, resnet_features
from degp.vision import Backbone, Recipe
from experiments import cifar10
from experiments.cifar10_prior import PRIORS
from experiments.protocols import options
from experiments.protocols.image_runs import Place, Run, run_experiment
from experiments.protocols.image_smoke import smoke_runs, tiny_features

METHODS: dict[str, dict[str, Any]] = {
    "de": {"method": Kind.DE, "beta": 0.0},
    "rde": {"method": Kind.RDE, "beta": 0.1},
    "degp": {"method": Kind.DEGP, "alpha": 0.05, "beta": 0.1},
}
NETWORK = "resnet20 trunk"  # as stored results name it
BACKBONE_RATE, HEADS_RATE = 0.01, 0.01


def main(
    out: options.Out = Path("experiments/results/cifar10_sharing"),
    checkpoints: options.CheckpointFolder = None,
    methods: options.Methods = ",".join(METHODS),
    alpha: options.Weight = METHODS["degp"]["alpha"],
    prior: Annotated[str, typer.Option(help="Of DE-GP, one of those in `cifar10_prior`.")] = cifar10.PRIOR,
    heads_rate: Annotated[
        float, typer.Option(callback=options.require_weight, help="The heads' learning rate.")
    ] = HEADS_RATE,
    seeds: options.Seeds = "0,1,2",
    epochs: options.Epochs = 200,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """DE, rDE and DE-GP whose members share a backbone."""
    runs = planned(methods, seeds, epochs, smoke, alpha=alpha, prior=prior, heads_rate=heads_rate)
    place = Place.open(out, checkpoints, device, minutes, smoke)
    run_experiment(place, runs, cifar10.image_sets(smoke), cifar10.FIGURES)


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
    networks = PRIORS[options.one_of(prior, PRIORS, "--prior")]
    settings: dict[str, Any] = {"alpha": alpha, "prior": networks, "learning_rate": heads_rate}
    network = NETWORK if heads_rate == HEADS_RATE else f"{NETWORK}, heads at {heads_rate:g}"
    runs = [
        Run(network, prior, replace(recipe(method, epochs), **settings), seed)
        for seed in options.whole_numbers(seeds)
        for method in options.chosen(methods, METHODS)
    ]
    return [with_tiny_backbone(run) for run in smoke_runs(runs)] if smoke else runs


def recipe(method: str, epochs: int = 200) -> Recipe:
    """The settings of `METHODS`, with a ResNet-20 as backbone."""
    return replace(
        cifar10.recipe("resnet20", "degp", epochs),
        make_network=partial(mlp, 64, (64, 64), 10),
        learning_rate=HEADS_RATE,
        backbone=Backbone(partial(resnet_features, 20), BACKBONE_RATE),
        **METHODS[method],
    )


def with_tiny_backbone(run: Run) -> Run:
    """The run with a tiny backbone and heads, for smoke runs."""
    backbone = Backbone(tiny_features, BACKBONE_RATE)
    return replace(run, recipe=replace(run.recipe, make_network=partial(mlp, 16, (8,), 10), backbone=backbone))
