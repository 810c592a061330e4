"""Laplace approximations of the last layers of trained members (Daxberger et al., 2021), by laplace-torch."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from degp.vision import Trained
from experiments.protocols.laplace import fitted_laplace, laplace_draws
from experiments.protocols.shift.sets import ShiftSets

__all__ = ["LaplaceMembers", "last_layers"]

DRAWS = 100  # of all members together
SIZE = 500  # images at a time


@dataclass(frozen=True)
class LaplaceMembers(Trained):
    """Trained members, each with a Gaussian posterior of its last layer; draws of all are read as members."""

    posteriors: tuple[Any, ...]

    def outputs(
        self, images: UInt8[Tensor, "N channels H W"], *, batch_size: int | None = None, progress: bool | None = None
    ) -> Float[Tensor, "S N C"]:
        """Draws of the logits; the same at every call with the same images."""
        each = max(1, DRAWS // len(self.posteriors))
        draws = [laplace_draws(own, images, each, seed, SIZE) for seed, own in enumerate(self.posteriors)]
        return torch.cat(draws)


def last_layers(trained: Trained, sets: ShiftSets) -> Trained:
    """Members with a Gaussian posterior of their last layer given all training images, which are not augmented."""
    normalise = trained.recipe.normalise(sets.train.inputs.device)
    networks = [nn.Sequential(normalise, member) for member in trained.ensemble.to_modules()]
    posteriors = tuple(fitted_laplace(network, sets.train, "full", SIZE) for network in networks)
    return LaplaceMembers(**vars(trained), posteriors=posteriors)
