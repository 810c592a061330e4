"""Independent noise on every value of an image: Gaussian, shot, impulse, speckle."""

import torch
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.filters import unit

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


def gaussian_noise(
    images: UInt8[Tensor, "N 3 32 32"], std: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """x + σε with ε ~ N(0, 1)."""
    return 255 * (unit(images) + std * _standard_normal(images, generator))


def shot_noise(images: UInt8[Tensor, "N 3 32 32"], photons: int, *, generator: Generator) -> Float[Tensor, "N 3 32 32"]:
    """k / λ with k ~ Poisson(λx): white is λ photons."""
    return 255 * (torch.poisson(unit(images) * photons, generator=generator) / photons)


def impulse_noise(
    images: UInt8[Tensor, "N 3 32 32"], amount: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """Salt (255) or pepper (0), equally likely, in a fraction `amount` of the values, independent per channel."""
    hit, salt = _uniform(images, generator) < amount, _uniform(images, generator) < 0.5
    return torch.where(hit, 255.0 * salt, images)


def speckle_noise(
    images: UInt8[Tensor, "N 3 32 32"], std: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """x + xσε with ε ~ N(0, 1)."""
    x = unit(images)
    return 255 * (x + x * std * _standard_normal(images, generator))


def _standard_normal(images: UInt8[Tensor, "*axes"], generator: Generator) -> Float[Tensor, "*axes"]:
    return torch.randn(images.shape, generator=generator, device=images.device)


def _uniform(images: UInt8[Tensor, "*axes"], generator: Generator) -> Float[Tensor, "*axes"]:
    return torch.rand(images.shape, generator=generator, device=images.device)
