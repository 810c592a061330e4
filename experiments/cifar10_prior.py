"""CIFAR-10: DE-GP by the networks of its prior: their depth and number, resampled or fixed (the paper's ablation).

All else as in `cifar10`. The paper varies the depth with ResNet-56 and ResNet-110 as members; the number of draws,
fixed draws and centred draws are ours.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from degp.nets import lite_resnet_features
from degp.vision import PriorNetworks
from experiments import cifar10
from experiments.protocols import options
from experiments.protocols.image_runs import Place, Run, run_experiment
from experiments.protocols.image_smoke import smoke_runs


def _networks(depth: int, num_draws: int = 10, *, redrawn: bool = True, centred: bool = False) -> PriorNetworks:
    return PriorNetworks(partial(lite_resnet_features, depth), num_draws, redrawn, centred)


PRIORS = {
    "lite resnet8": _networks(8),
    "lite resnet20": _networks(20),
    "lite resnet56": _networks(56),
    "lite resnet110": _networks(110),
    "lite resnet20 fixed": _networks(20, redrawn=False),
    "lite resnet20 centred": _networks(20, centred=True),
    "lite resnet20 S=5": _networks(20, 5),
    "lite resnet20 S=64": _networks(20, 64),
    "lite resnet20 S=64 fixed": _networks(20, 64, redrawn=False),
}


def main(
    out: options.Out = Path("experiments/results/cifar10_prior"),
    checkpoints: options.CheckpointFolder = None,
    priors: Annotated[str, typer.Option(help=f"Any of {', '.join(PRIORS)}; separated by commas.")] = ",".join(PRIORS),
    alpha: options.Weight = cifar10.METHODS["degp"]["alpha"],
    network: cifar10.Network = "resnet20",
    seeds: options.Seeds = "0,1,2",
    epochs: options.Epochs = 200,
    device: options.Device = options.DEVICE,
    minutes: options.Minutes = None,
    smoke: options.Smoke = False,
) -> None:
    """DE-GP for each prior."""
    shared = cifar10.recipe(network, "degp", epochs)
    runs = [
        Run(network, prior, replace(shared, prior=PRIORS[prior], alpha=alpha), seed)
        for seed in options.whole_numbers(seeds)
        for prior in options.chosen(priors, PRIORS, "--priors")
    ]
    place = Place.open(out, checkpoints, device, minutes, smoke)
    run_experiment(place, smoke_runs(runs) if smoke else runs, cifar10.image_sets(smoke), cifar10.FIGURES)
