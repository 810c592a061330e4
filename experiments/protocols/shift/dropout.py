"""MC dropout (Gal and Ghahramani, 2016): one network whose passes with dropout are read as members."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from degp.nets import resnet
from degp.nets.resnets import Residual
from degp.vision import Trained
from experiments.protocols.shift.sets import ShiftSets

RATE, PASSES = 0.1, 10


class AlwaysDropout(nn.Module):
    """Dropout in training and in evaluation."""

    def __init__(self, rate: float = RATE) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, training=True)


def dropout_resnet(depth: int, num_classes: int) -> nn.Sequential:
    """A ResNet with dropout after each residual block."""
    layers = (
        (layer, AlwaysDropout()) if isinstance(layer, Residual) else (layer,) for layer in resnet(depth, num_classes)
    )
    return nn.Sequential(*(part for own in layers for part in own))


@dataclass(frozen=True)
class Passes(Trained):
    """A trained network with dropout, whose outputs are those of several passes."""

    passes: int = PASSES

    def outputs(
        self, images: UInt8[Tensor, "N channels H W"], *, batch_size: int | None = None, progress: bool | None = None
    ) -> Float[Tensor, "M N C"]:
        """The outputs of all passes; the same at every call with the same images."""
        devices = [images.device] if images.is_cuda else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(0)
            options = {"batch_size": batch_size, "progress": progress}
            return torch.cat([super(Passes, self).outputs(images, **options) for _ in range(self.passes)])


def passes(trained: Trained, sets: ShiftSets) -> Trained:
    """Trained networks, read as several passes with dropout."""
    return Passes(**vars(trained))
