"""Features of CIFAR-10, of OOD images and of corrupted test images, computed once and cached in files."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from degp.data import subset
from degp.features import cache_features
from degp.typing import Batch
from experiments.data import DataSetError, cifar10, cifar100_part, fashion_mnist, svhn
from experiments.data.backbones import image_backbone
from experiments.data.corruptions import CORRUPTIONS, corrupt, frost_overlays
from experiments.protocols.image_sets import hold_out
from experiments.protocols.image_smoke import synthetic_sets
from experiments.protocols.pretrained.sets import FeatureSets
from experiments.protocols.shift.sets import in_colour

__all__ = ["OOD", "VALIDATION", "feature_sets", "images", "smoke_sets"]

VALIDATION = 5000
SEVERITIES = (1, 2, 3, 4, 5)
CLASSES = 10
OOD = ("svhn", "cifar100", "fashion")
BATCH = 2000  # images at a time


@cache
def feature_sets(folder: Path, device: str, per_cell: int) -> FeatureSets:
    """Features on the device, from the files in a folder, which are made if they are missing.

    Args:
        folder: for the files, about 1.5 GB.
        per_cell: corrupted test images per corruption and severity, the first ones of the test set.
    """
    backbone = image_backbone().to(device)
    torch.backends.cudnn.benchmark = True
    found = {name: _features(backbone, name, folder, device, per_cell) for name in PARTS}
    train, validation = hold_out(found["train"], VALIDATION)
    ood = {name: found[name].inputs for name in OOD}
    return FeatureSets(train, validation, found["test"], ood, found["corrupted"], "corrupted", CLASSES)


def images(name: str, device: str, per_cell: int) -> Iterator[Batch]:
    """Images of a part as bytes, some at a time."""
    if name == "corrupted":
        yield from corrupted_images(subset(cifar10("test"), slice(per_cell)).to(device=device))
        return
    part = PARTS[name]()
    for rows in torch.arange(len(part)).split(BATCH):
        yield subset(part, rows).to(device=device)


def corrupted_images(test: Batch, *, seed: int = 0) -> Iterator[Batch]:
    """The test images under every corruption and severity; without overlays frost is omitted."""
    try:
        overlays: tuple[Tensor, ...] | None = tuple(overlay.to(test.device) for overlay in frost_overlays())
    except DataSetError:
        overlays = None
    possible = [name for name in CORRUPTIONS if name != "frost" or overlays is not None]
    for name, severity in product(possible, SEVERITIES):
        generator = torch.Generator(test.device).manual_seed(seed)
        changed = corrupt(test.inputs, name, severity, generator=generator, overlays=overlays)
        yield Batch(changed, test.targets)


def smoke_sets() -> FeatureSets:
    """Pixels of a few synthetic images as features."""
    sets = synthetic_sets()
    assert sets.ood is not None

    def of(batch: Batch) -> Batch:
        return Batch(batch.inputs[:, :, ::8, ::8].float().flatten(1) / 255, batch.targets)

    train, validation, test, ood = (of(part) for part in (sets.train, sets.validation, sets.test, sets.ood))
    return FeatureSets(train, validation, test, dict.fromkeys(OOD, ood.inputs), test, "corrupted", CLASSES)


def _in_colour(grey: Batch) -> Batch:
    return replace(grey, inputs=in_colour(grey.inputs))


PARTS = {
    "train": lambda: cifar10("train"),
    "test": lambda: cifar10("test"),
    "svhn": lambda: svhn("test"),
    "cifar100": lambda: cifar100_part("test"),
    "fashion": lambda: _in_colour(fashion_mnist("test")),
    "corrupted": lambda: None,
}


def _features(backbone: nn.Module, name: str, folder: Path, device: str, per_cell: int) -> Batch:
    suffix = f"_{per_cell}" if name == "corrupted" else ""
    path = folder / f"{name}{suffix}.safetensors"
    return cache_features(backbone, images(name, device, per_cell), path=path, batch_size=BATCH)
