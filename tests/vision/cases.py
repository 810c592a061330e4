"""Tiny networks and images whose brightness tells the class, and ensembles trained on them."""

from functools import cache

import torch
from torch import nn

from degp.methods import Kind
from degp.predictive import ClassPredictive
from degp.runtime.execution import Vmap
from degp.typing import Batch
from degp.vision import PriorNetworks, Recipe, train
from experiments.protocols.image_sets import ImageSets

CLASSES = 3
SCALE = ((0.5,) * 3, (0.25,) * 3)
METHODS = list(Kind)


def features():
    return nn.Sequential(nn.Conv2d(3, 4, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def network():
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 5, 4), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(16, CLASSES)),
    )


def recipe(method="degp", **options):
    settings = {
        "members": 3,
        "epochs": 4,
        "batch_size": 16,
        "warm_up": 1,
        "learning_rate": 0.01,
        "alpha": 0.01,
        "beta": 0.1,
        "context": None,
    } | options
    return Recipe(network, PriorNetworks(features, 3), SCALE, method=method, **settings)


def images(number, seed, contrast=30):
    """Without contrast the classes look the same."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (number,), generator=generator)
    levels = 90 * torch.rand(number, 3, 32, 32, generator=generator) + contrast * labels.view(-1, 1, 1, 1)
    return Batch(levels.to(torch.uint8), labels)


SETS = ImageSets(images(72, 0), images(30, 1), images(24, 2), images(20, 3, contrast=0))


def trained(method="degp", **options):
    return train(recipe(method, **options), SETS.train, seed=0, execution=Vmap(), progress=False)


@cache
def example(method="degp"):
    """The same trained ensemble for all tests, which leave it as it is."""
    return trained(method)


def predictive(number, seed):
    generator = torch.Generator().manual_seed(seed)
    draws = torch.softmax(2 * torch.randn(5, number, CLASSES, generator=generator), -1)
    return ClassPredictive.from_draws(draws)


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}
