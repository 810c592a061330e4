"""How an ensemble of image networks is trained: everything that defines a run except its data and its seed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from degp.ensemble import Ensemble
from degp.measurement import BatchAndMeasurement, Domain, MeasurementSampler
from degp.methods import Built, Kind
from degp.priors import WeightPrior
from degp.training.transform import Transform
from degp.vision.augmentation import CropAndFlip, Normalise
from degp.vision.context import context_images

__all__ = ["WEIGHT_PRIOR", "Backbone", "Cosine", "Milestones", "PriorNetworks", "Recipe"]

WEIGHT_PRIOR = WeightPrior(weights=2.0, biases=0.01)  # the paper's, for initial weights, penalties and prior networks
MakeNetwork = Callable[[], nn.Module]
CROP_AND_FLIP = CropAndFlip()
CONTEXT = context_images()
EVERYWHERE = BatchAndMeasurement()
Schedule = Callable[[int, int], float]  # (epoch, epochs) to a factor of the learning rate
Variant = Callable[[Built], Built]
Light = Callable[[nn.Module, int, torch.Generator], Ensemble]


@dataclass(frozen=True)
class Cosine:
    """½ (1 + cos πe/E) in epoch e = 0, 1, … of E.

    Example:
        >>> schedule = Cosine()
        >>> [round(schedule(epoch, 4), 2) for epoch in range(4)]
        [1.0, 0.85, 0.5, 0.15]
    """

    def __call__(self, epoch: int, epochs: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


@dataclass(frozen=True)
class Milestones:
    """Multiplied by `factor` at each of these fractions of the epochs.

    Example:
        >>> schedule = Milestones((0.5, 0.75), 0.1)
        >>> [round(schedule(epoch, 4), 2) for epoch in range(4)]
        [1.0, 1.0, 0.1, 0.01]
    """

    shares: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __call__(self, epoch: int, epochs: int) -> float:
        return self.factor ** sum(epoch >= share * epochs for share in self.shares)


@dataclass(frozen=True)
class PriorNetworks:
    """The random networks whose features define the prior's kernel, as in `MonteCarloNNGP`.

    Attributes:
        make_features: a network without its read-out, without BatchNorm and shortcuts.
        num_draws: S; on CIFAR-10 five did as well as ten.
        redrawn: whether they are resampled at every step, or drawn once.
        centred: whether their mean over the batch is subtracted, see `Centred`.
        resolution: rows and columns of the images that they see, averaged over pixels; None for the images as they
            are. Half the rows cost a quarter.
    """

    make_features: MakeNetwork
    num_draws: int = 5
    redrawn: bool = True
    centred: bool = False
    resolution: int | None = None

    def __post_init__(self) -> None:
        if self.resolution is not None and self.resolution < 1:
            raise ValueError(f"resolution is a number of pixels and must be at least 1, but it is {self.resolution}")

    def features(self) -> nn.Module:
        """x ↦ h(x̄), x̄ the image at `resolution`.        theory/prior.md (9)"""
        network = self.make_features()
        return network if self.resolution is None else nn.Sequential(nn.AdaptiveAvgPool2d(self.resolution), network)


@dataclass(frozen=True)
class Backbone:
    """Weights shared by all members: a network from images to features, with its own learning rate."""

    make: MakeNetwork
    learning_rate: float


@dataclass(frozen=True)
class Recipe:
    """A method with its networks and its optimiser, for `train`.

    The defaults of α and `context` are what validation images of CIFAR-10 preferred: one seed, 20 epochs. The paper has
    α = 0.1, its authors' commands 0.01, both without context.

    Attributes:
        make_network: one member, from images to outputs; with a `backbone`, a head, from features to outputs.
        prior: for DE-GP only.
        scale: (mean, std) per channel, see `Normalise`.
        method: a `methods.Kind`, or its name.
        alpha: α of DE-GP as in the paper's equation (5), where it weighs the divergence against the sum over the
            batch; `bayes_alpha` converts it to the units of `methods.DEGP`.
        beta: weight of the penalty ½ Σ (w − a)²/σ₀² / N per member: β of DE-GP, the prior of rDE, the anchors of RMS.
        learning_rate: of stochastic gradient descent, before schedule and warm-up.
        schedule: its factor per epoch.
        warm_up: epochs over which the rate first rises linearly.
        temperature: initial value of DE-GP's learned temperature; the other methods train at 1.
        temperature_rate: learning rate of Adam for the temperature.
        augmentation: from images in uint8 and a generator to images in uint8, before normalisation; None for none.
        backbone: shared by the members, if there is one.
        context: DE-GP's measurement points, made from a normalised batch: by default 32 `context_images`; None for
            none.
        domain: where DE-GP's divergence is measured, if there is a context.
        light: makes light members of one network, such as `rank_one`; None for M networks of their own.
        variant: makes another method of the one that `method` names, if there is one.
    """

    make_network: MakeNetwork
    prior: PriorNetworks
    scale: tuple[Sequence[float], Sequence[float]]
    method: Kind | str = Kind.DEGP
    alpha: float = 0.003
    beta: float = 0.1
    members: int = 10
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    schedule: Schedule = Milestones()
    warm_up: int = 5
    temperature: float = 1.0
    temperature_rate: float = 1e-3
    augmentation: Transform | None = CROP_AND_FLIP
    backbone: Backbone | None = None
    context: MeasurementSampler | None = CONTEXT
    domain: Domain = EVERYWHERE
    light: Light | None = None
    variant: Variant | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", Kind(self.method))
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, but it is {self.epochs}")
        if self.method is Kind.DEGP and self.members < 2:
            raise ValueError(f"DE-GP needs at least two members for a covariance, but there is {self.members}")

    def bayes_alpha(self, num_images: int) -> float:
        """α in units of Bayes' weight B/N, for N training images: the paper's α times N/B."""
        return self.alpha * num_images / self.batch_size

    def rate_factor(self, epoch: int) -> float:
        """min(1, (e + 1)/W) · schedule(e): the learning rate of epoch e, as a fraction of `learning_rate`."""
        return min(1.0, (epoch + 1) / max(1, self.warm_up)) * self.schedule(epoch, self.epochs)

    def normalise(self, device: torch.device | str) -> Normalise:
        """From images in uint8 to what the networks see, on a GPU channels-last."""
        return Normalise(*self.scale, channels_last=torch.device(device).type == "cuda").to(device)

    def describe(self) -> dict[str, Any]:
        """The recipe as JSON values, without the functions that make networks; saved runs are compared by it."""
        plain = [field.name for field in fields(self) if field.name not in ("make_network", "prior", "backbone")]
        values = {name: getattr(self, name) for name in plain}
        if self.domain == EVERYWHERE:
            values["domain"] = None  # as in saved runs that have none
        return {name: v if isinstance(v, str | int | float | None) else str(v) for name, v in values.items()} | {
            "prior_draws": self.prior.num_draws,
            "prior_redrawn": self.prior.redrawn,
            "prior_centred": self.prior.centred,
            "prior_resolution": self.prior.resolution,
            "trunk_learning_rate": None if self.backbone is None else self.backbone.learning_rate,  # key of saved runs
        }
