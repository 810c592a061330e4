"""Enlargement and rotation by cubic splines: transverse chromatic aberration, circular motion blur."""

import math
from functools import lru_cache

import torch
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.filters import SIDE, unit

__all__ = [
    "circular_motion_blur",
    "enlargement",
    "mean_rotation",
    "spline_matrix",
    "transverse_chromatic_aberration",
]


def circular_motion_blur(images: UInt8[Tensor, "N 3 32 32"], level: float) -> Float[Tensor, "N 3 32 32"]:
    """The mean of the images turned by −1.5·level to 1.5·level degrees, see `mean_rotation`."""
    x = unit(images)
    turned = x.flatten(2) @ mean_rotation(1.5 * level).to(x).mT
    return 255 * turned.view_as(x).float()  # float32, as in the benchmark: white, up to rounding errors, is white


@lru_cache(maxsize=5)
def mean_rotation(degrees: float) -> Float[Tensor, "1024 1024"]:
    """Σᵤ wᵤ R(u·degrees) / Σᵤ wᵤ with wᵤ ∝ exp(−2u²), u = −1, −0.9, …, 1.

    R turns an image around its centre, interpolates with cubic splines, and is black where it leaves the image.
    """
    pixels = torch.arange(SIDE, dtype=torch.double)
    centred = torch.cartesian_prod(pixels, pixels) - (SIDE - 1) / 2
    total, weights = torch.zeros(SIDE**2, SIDE**2, dtype=torch.double), 0.0
    for i in range(-10, 11):
        u = i / 10
        cos, sin = math.cos(math.radians(u * degrees)), math.sin(math.radians(u * degrees))
        places = centred @ torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.double) + (SIDE - 1) / 2
        inside = ((places >= 0) & (places <= SIDE - 1)).all(1)
        rows, columns = spline_matrix(places[:, 0]), spline_matrix(places[:, 1])
        rotation = (rows[:, :, None] * columns[:, None, :]).flatten(1) * inside[:, None]
        total += math.exp(-2 * u**2) * rotation
        weights += math.exp(-2 * u**2)
    coefficients = torch.linalg.inv(spline_matrix(pixels))  # of the spline through the pixels
    return total @ torch.kron(coefficients, coefficients) / weights


def transverse_chromatic_aberration(
    images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """The three channels enlarged by 1, 1 + s/2 and 1 + s in random order, with s = 0.05·level, see `enlargement`."""
    zooms = torch.stack([enlargement(1 + 0.05 * level * share) for share in (0, 0.5, 1)]).to(images.device)
    order = torch.rand((len(images), 3), generator=generator, device=images.device).argsort(1)
    zoom = zooms[order]  # (N, 3, 32, 32)
    return (zoom @ images.double() @ zoom.mT + 0.5).floor()


def enlargement(factor: float) -> Float[Tensor, "32 32"]:
    """The matrix of the central 32 pixels of a row enlarged to round(32·factor) pixels.

    The pixels are the coefficients of the spline, which therefore does not pass through them: a factor of 1 blurs with
    the weights 1/6, 4/6, 1/6.
    """
    size = round(SIDE * factor)
    kept = (size - SIDE) // 2 + torch.arange(SIDE, dtype=torch.double)
    return spline_matrix(kept * (SIDE - 1) / (size - 1))


def spline_matrix(places: Float[Tensor, "k"]) -> Float[Tensor, "k 32"]:
    """Bᵢⱼ = Σ β(placeᵢ − m) over m that mirror to j, the cubic B-spline with its coefficients mirrored at both ends.

    β(u) = ((2 − |u|)₊³ − 4 (1 − |u|)₊³) / 6.
    """
    u = (places[:, None] - torch.arange(-1, SIDE + 1)).abs()
    weights = ((2 - u).clamp(min=0) ** 3 - 4 * (1 - u).clamp(min=0) ** 3) / 6
    inner = weights[:, 1:-1].clone()
    inner[:, 1] += weights[:, 0]  # −1 mirrors to 1
    inner[:, -2] += weights[:, -1]  # 32 mirrors to 30
    return inner
