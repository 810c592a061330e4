"""CIFAR-10: DE-GP by the networks of its prior: their depth and number, redrawn or fixed (the paper's ablation).

All else as in `cifar10`. The paper varies the depth with ResNet-56 and ResNet-110 as members; the number of draws,
drawing them once and taking their constant out are ours.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from degp.imaging import PriorNetworks
from degp.nets import lite_resnet_features
from experiments import cifar10
from experiments.image_runs import (
    Place,
    Run,
    do_runs,
    draw_curves,
    judged,
    tried_out,
    write_summary,
)
from experiments.options import (
    DEVICE,
    CheckpointFolder,
    Device,
    Epochs,
    Minutes,
    Seeds,
    Smoke,
    Weight,
    chosen,
    whole_numbers,
)


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
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path(
        "experiments/results/cifar10_prior"
    ),
    checkpoints: CheckpointFolder = None,
    priors: Annotated[str, typer.Option(help=f"Any of {', '.join(PRIORS)}; separated by commas.")] = ",".join(PRIORS),
    alpha: Weight = cifar10.METHODS["degp"]["alpha"],
    network: Annotated[str, typer.Option(help=f"One of {', '.join(cifar10.NETWORKS)}.")] = "resnet20",
    seeds: Seeds = "0,1,2",
    epochs: Epochs = 200,
    device: Device = DEVICE,
    minutes: Minutes = None,
    smoke: Smoke = False,
) -> None:
    """DE-GP for each prior."""
    shared = cifar10.recipe(network, "degp", epochs)
    runs = [
        Run(network, prior, replace(shared, prior=PRIORS[prior], alpha=alpha), seed)
        for seed in whole_numbers(seeds)
        for prior in chosen(priors, PRIORS, "--priors")
    ]
    place = Place.open(out, checkpoints, device, minutes, smoke)
    do_runs(place, tried_out(runs) if smoke else runs, cifar10.image_sets(smoke).to(place.device), judged)
    write_summary(place)
    draw_curves(place, cifar10.FIGURES)
