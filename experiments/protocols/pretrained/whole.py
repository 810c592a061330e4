"""Methods that reach into the network: LoRA and rank-one members of its tail, and fine-tuning of all weights."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

from degp.data import subset
from degp.ensemble import Ensemble, lora, rank_one
from degp.likelihoods import Categorical
from degp.methods import Method, de, degp
from degp.training import EachStep, Eager, Plan, adam, fit
from degp.typing import Batch, joined
from degp.vision.augmentation import CropAndFlip
from experiments.data.backbones import OnImages, efficientnet_lite0
from experiments.protocols.image_sets import hold_out
from experiments.protocols.pretrained.image_features import CLASSES, OOD, VALIDATION, images
from experiments.protocols.pretrained.scoring import Functions
from experiments.protocols.pretrained.sets import FeatureSets, Problem

__all__ = [
    "FineTuning",
    "Tail",
    "fine_tuned",
    "image_sets",
    "light_members",
    "lora_tails",
    "map_sets",
    "rank_one_tails",
    "split_network",
]

RANK, SPREAD = 4, 0.1
LIGHT_RATE, LIGHT_BATCH = 1e-3, 128
PIECE = 1000  # images at a time


@dataclass(frozen=True)
class FineTuning:
    """How all weights are trained: AdamW with a cosine schedule, BatchNorm's statistics frozen, crops and flips."""

    steps: int = 600
    batch_size: int = 128
    learning_rate: float = 3e-4
    weight_decay: float = 0.01


class Tail(nn.Module):
    """The network from its last 1 × 1 convolution on: positions (N, 36, 320) to features (N, 1280) to logits.

    BatchNorm is part of the convolution's weights, which makes it a linear layer, per position.
    """

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d, classes: int) -> None:
        super().__init__()
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        self.expand = nn.Linear(convolution.in_channels, convolution.out_channels)
        with torch.no_grad():
            self.expand.weight.copy_(scale[:, None] * convolution.weight.flatten(1))
            self.expand.bias.copy_(norm.bias - scale * norm.running_mean)
        self.head = nn.Linear(convolution.out_channels, classes)

    def features(self, positions: Float[Tensor, "N P K"]) -> Float[Tensor, "N D"]:
        """As the whole network gives them."""
        return F.relu6(self.expand(positions.float())).mean(-2)

    def forward(self, positions: Float[Tensor, "N P K"]) -> Float[Tensor, "N C"]:
        return self.head(self.features(positions))


class _Body(nn.Module):
    """EfficientNet up to its last convolution: images to positions (N, P, K)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N P K"]:
        net = self.network
        x = net._swish(net._bn0(net._conv_stem(inputs)))
        for block in net._blocks:
            x = block(x)
        return x.flatten(2).mT


def split_network(classes: int) -> tuple[nn.Module, Tail]:
    """EfficientNet-lite0 in two parts: on images as bytes, and the tail."""
    network = efficientnet_lite0()
    tail = Tail(network._conv_head, network._bn1, classes)
    return OnImages(_Body(network)).requires_grad_(False).eval(), tail


@cache
def image_sets(device: str, per_cell: int) -> FeatureSets:
    """All images as bytes on the device."""
    found = {name: joined(*images(name, device, per_cell)) for name in ("train", "test", *OOD, "corrupted")}
    train, validation = hold_out(found["train"], VALIDATION)
    ood = {name: found[name].inputs for name in OOD}
    return FeatureSets(train, validation, found["test"], ood, found["corrupted"], "corrupted", CLASSES)


@cache
def map_sets(device: str, per_cell: int) -> tuple[FeatureSets, Tail]:
    """Positions of all images in half precision, about 7 GB, and the tail that they are inputs of."""
    body, tail = split_network(CLASSES)
    body, tail = body.to(device), tail.to(device)
    half = torch.float16 if device == "cuda" else torch.float32

    def positions(points: UInt8[Tensor, "N 3 H W"]) -> Float[Tensor, "N P K"]:
        return torch.cat([body(piece).to(half) for piece in points.split(PIECE)])

    return image_sets(device, per_cell).mapped(positions), tail


Make = Callable[[Tail, int, torch.Generator], Ensemble]


def lora_tails(tail: Tail, members: int, generator: torch.Generator) -> Ensemble:
    """Members with updates of rank four to the last convolution and read-outs of their own."""
    return lora(tail, members, rank=RANK, layers="expand", own="head", spread=SPREAD, generator=generator)


def rank_one_tails(tail: Tail, members: int, generator: torch.Generator) -> Ensemble:
    """Members with factors on the frozen last convolution and on a read-out that they share."""
    base = copy.deepcopy(tail)
    base.expand.requires_grad_(False)
    return rank_one(base, members, spread=SPREAD, generator=generator)


def light_members(
    problem: Problem, sets: FeatureSets, tail: Tail, make: Make, *, functional: bool, members: int, steps: int
) -> Functions:
    """Light members of the tail, trained as DE-GP or as DE.

    The prior is the heads' own: of the scaled principal components of the frozen network's features.
    """
    own, generator = sets.labelled(len(problem.points.train), problem.seed), problem.generator()
    ensemble = make(tail, members, generator)
    nngp = problem.scales.nngp()

    @torch.no_grad()
    def kernel(left: Tensor, right: Tensor) -> Tensor:
        return nngp(*(problem.projection(tail.features(maps)) for maps in (left, right)))

    method = degp(Categorical(), kernel) if functional else de(Categorical())
    _train_light(ensemble, own.train, method.to(own.train.device), steps, generator)

    def outputs(points: Float[Tensor, "N P K"]) -> Float[Tensor, "M N C"]:
        return torch.cat([ensemble(piece) for piece in points.split(PIECE)], dim=1)

    return Functions(outputs, own, method)


def _train_light(ensemble: Ensemble, data: Batch, method: Method, steps: int, generator: torch.Generator) -> None:
    optimizer = adam([p for p in ensemble.parameters() if p.requires_grad], LIGHT_RATE)
    size = min(LIGHT_BATCH, len(data))
    epochs = -(-steps // (len(data) // size))
    total = epochs * (len(data) // size)
    fit(
        ensemble,
        data,
        method,
        Plan(epochs, size, stepping=Eager(even=True)),
        optimizer=optimizer,
        scheduler=EachStep(LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / total)))),
        generator=generator,
        progress=False,
    )
    ensemble.eval()


def fine_tuned(sets: FeatureSets, labels: int, seed: int, training: FineTuning) -> Functions:
    """One network with a new last layer, all weights trained."""
    own = sets.labelled(labels, seed)
    device = own.train.device
    torch.manual_seed(seed)
    network = efficientnet_lite0()
    network._fc = nn.Linear(network._conv_head.out_channels, own.classes)
    model = OnImages(network).to(device).eval()  # also in training: few images would spoil BatchNorm's statistics
    _train_all(model, own.train, training, torch.Generator(device).manual_seed(seed))

    def outputs(points: Shaped[Tensor, "N 3 H W"]) -> Float[Tensor, "1 N C"]:
        return torch.cat([model(piece) for piece in points.split(PIECE)])[None]

    return Functions.draws(outputs, own)


def _train_all(model: OnImages, data: Batch, training: FineTuning, generator: torch.Generator) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), training.learning_rate, weight_decay=training.weight_decay)
    schedule = CosineAnnealingLR(optimizer, training.steps)
    augment = CropAndFlip()
    for _ in range(training.steps):
        rows = torch.randint(len(data), (training.batch_size,), device=data.device, generator=generator)
        batch = subset(data, rows)
        inputs = model.enlarged(augment(batch.inputs, generator))
        with torch.autocast(data.device.type, torch.bfloat16, enabled=data.device.type == "cuda"):
            loss = F.cross_entropy(model.network(inputs).float(), batch.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
