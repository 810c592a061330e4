"""How an ensemble of image networks is trained: all that makes a run but its data and its seed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from degp.data import CropAndFlip

METHODS = {"de": "DE", "rde": "rDE", "rms": "RMS", "degp": "DE-GP"}
MakeNetwork = Callable[[], nn.Module]
CROP_AND_FLIP = CropAndFlip()
Schedule = Callable[[int, int], float]  # (epoch, epochs) to a factor for the learning rate


@dataclass(frozen=True)
class Cosine:
    """½ (1 + cos πe/E) in epoch e = 0, 1, … of E."""

    def __call__(self, epoch: int, epochs: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


@dataclass(frozen=True)
class Milestones:
    """Times `factor` from each of these shares of the epochs on."""

    shares: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __call__(self, epoch: int, epochs: int) -> float:
        return self.factor ** sum(epoch >= share * epochs for share in self.shares)


@dataclass(frozen=True)
class PriorNetworks:
    """The random networks whose features make the prior's kernel, as in `MonteCarloNNGP`.

    Attributes:
        make_features: a network without its read-out, without BatchNorm and shortcuts.
        num_draws: S.
        redrawn: whether they are drawn anew at every step, or once.
        centred: whether their functions count without their average over the batch, see `Centred`.
    """

    make_features: MakeNetwork
    num_draws: int = 10
    redrawn: bool = True
    centred: bool = False


@dataclass(frozen=True)
class Trunk:
    """Weights that all members share: a network from images to features, with a learning rate of its own."""

    make: MakeNetwork
    learning_rate: float


@dataclass(frozen=True)
class Recipe:
    """A method with its networks and its optimiser; `train` follows it.

    Attributes:
        make_network: one member, from images to outputs; with a `trunk`, a head, from features to outputs.
        prior: for DE-GP only.
        scale: (mean, std) of each channel, see `Normalise`.
        method: "de", "rde", "rms" or "degp".
        alpha: α, the weight of the divergence (DE-GP).
        beta: weight of the penalty ½ Σ (w − a)²/σ₀² / N per member: β of DE-GP, the prior of rDE, the anchors of RMS.
        learning_rate: of stochastic gradient descent, before schedule and warm-up.
        schedule: its factor, epoch by epoch.
        warm_up: epochs over which the rate first rises in equal steps.
        temperature: where the learned temperature of DE-GP starts; the other methods train at 1.
        temperature_rate: of Adam, for the temperature.
        augmentation: None leaves images as they are.
        trunk: what the members share, if anything.
    """

    make_network: MakeNetwork
    prior: PriorNetworks
    scale: tuple[Sequence[float], Sequence[float]]
    method: str = "degp"
    alpha: float = 0.01
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
    augmentation: CropAndFlip | None = CROP_AND_FLIP
    trunk: Trunk | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"a method must be one of {', '.join(METHODS)}, but it is {self.method!r}")
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, but it is {self.epochs}")
        if self.method == "degp" and self.members < 2:
            raise ValueError(f"DE-GP needs at least two members for a covariance, but there is {self.members}")

    def rate_factor(self, epoch: int) -> float:
        """min(1, (e + 1)/W) · schedule(e): the learning rate of epoch e, as a share of `learning_rate`."""
        return min(1.0, (epoch + 1) / max(1, self.warm_up)) * self.schedule(epoch, self.epochs)

    def describe(self) -> dict[str, Any]:
        """The recipe as JSON has it, without the functions that make networks."""
        plain = [field.name for field in fields(self) if field.name not in ("make_network", "prior", "trunk")]
        values = {name: getattr(self, name) for name in plain}
        return {name: v if isinstance(v, str | int | float | None) else str(v) for name, v in values.items()} | {
            "prior_draws": self.prior.num_draws,
            "prior_redrawn": self.prior.redrawn,
            "prior_centred": self.prior.centred,
            "trunk_learning_rate": None if self.trunk is None else self.trunk.learning_rate,
        }
