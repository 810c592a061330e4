"""Smoke runs of the image experiments: the same code with tiny networks on synthetic images."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from degp.typing import Batch
from degp.vision import PriorNetworks
from experiments.protocols.image_runs import Run
from experiments.protocols.image_sets import ImageSets


def tiny(channels: int = 3, classes: int = 10) -> nn.Sequential:
    """The smallest network with all kinds of layers, for smoke runs."""
    return nn.Sequential(nn.BatchNorm2d(channels), *tiny_features(channels), nn.Linear(16, classes))


def tiny_features(channels: int = 3, layers: int = 1) -> nn.Sequential:
    """The same without BatchNorm and read-out, with this many convolutions."""
    deeper = [part for _ in range(layers - 1) for part in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())]
    return nn.Sequential(nn.Conv2d(channels, 4, 3, 4), nn.ReLU(), *deeper, nn.AdaptiveAvgPool2d(2), nn.Flatten())


def tiny_prior(prior: PriorNetworks, channels: int = 3) -> PriorNetworks:
    """About an eighth of the layers and a tenth of the draws: different priors stay different."""
    with torch.device("meta"):
        layers = sum(isinstance(module, nn.Conv2d) for module in prior.make_features().modules())
    features = partial(tiny_features, channels, 1 + layers // 8)
    return replace(prior, make_features=features, num_draws=2 + prior.num_draws // 10)


def smoke_runs(runs: Sequence[Run], channels: int = 3, classes: int = 10) -> list[Run]:
    """The runs of the first seed with tiny networks, three members and two epochs."""

    def small(run: Run) -> Run:
        recipe = replace(
            run.recipe,
            make_network=partial(tiny, channels, classes),
            prior=tiny_prior(run.recipe.prior, channels),
            members=3,
            epochs=2,
            batch_size=16,
        )
        return replace(run, network="tiny", recipe=recipe)

    return [small(run) for run in runs if run.seed == runs[0].seed]


def synthetic_sets(channels: int = 3, size: int = 32, classes: int = 10) -> ImageSets:
    """Noise whose brightness grows with the class; out-of-distribution images are noise alone."""
    generator = torch.Generator().manual_seed(0)

    def images(number: int, contrast: float) -> Batch:
        labels = torch.randint(classes, (number,), generator=generator)
        noise = torch.rand(number, channels, size, size, generator=generator)
        levels = 100 * noise + contrast * 155 * labels.view(-1, 1, 1, 1) / classes
        return Batch(levels.to(torch.uint8), labels)

    return ImageSets(images(64, 1.0), images(32, 1.0), images(32, 1.0), images(32, 0.0))
