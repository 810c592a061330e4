"""Linear filters of small images: correlations, and matrices that act on rows and columns.

Everything is in float64: results are truncated to integer grey levels, where a rounding error can cost a whole level.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

__all__ = [
    "SIDE",
    "both_ways",
    "correlate",
    "gaussian_filter",
    "linear_matrix",
    "nearest",
    "reflected",
    "unit",
    "zoom_matrix",
]

SIDE = 32

Border = Callable[[Int[Tensor, "k"]], Int[Tensor, "k"]]


def unit(images: UInt8[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Images with grey levels in [0, 1]."""
    return images.double() / 255


def both_ways(matrix: Float[Tensor, "I J"], images: Float[Tensor, "*axes J J"]) -> Float[Tensor, "*axes I I"]:
    """A x Aᵀ of every image x: the matrix applied to columns and to rows."""
    matrix = matrix.to(images)
    return matrix @ (images @ matrix.mT)


def nearest(pixels: Int[Tensor, "k"]) -> Int[Tensor, "k"]:
    """Pads with the last pixel: a a | a b c | c c."""
    return pixels.clamp(0, SIDE - 1)


def reflected(pixels: Int[Tensor, "k"]) -> Int[Tensor, "k"]:
    """Pads with the reflected image: b a | a b c | c b."""
    wrapped = pixels % (2 * SIDE)
    return wrapped.minimum(2 * SIDE - 1 - wrapped)


def gaussian_filter(
    images: Float[Tensor, "*axes 32 32"], std: float, *, truncate: float = 4.0, border: Border = nearest
) -> Float[Tensor, "*axes 32 32"]:
    """Σᵢ wᵢ x(p + i) along columns and then rows, with wᵢ ∝ exp(−i² / 2σ²) up to i = `truncate` σ.

    Sums are taken in the order of scipy, from the tails inwards and in pairs, and agree with it bit-for-bit.
    """
    reach = int(truncate * std + 0.5)
    if reach == 0:
        return images
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 / std**2 * offsets**2)
    pairs = (weights / weights.sum())[: reach + 1].tolist()  # the central weight is last
    pixels = border(torch.arange(-reach, SIDE + reach)).to(images.device)
    for _ in range(2):  # down the columns, and then, transposed, along the rows
        padded = images.index_select(-2, pixels)
        images = images * pairs[reach]
        for i in range(reach):
            images += (padded.narrow(-2, i, SIDE) + padded.narrow(-2, 2 * reach - i, SIDE)) * pairs[i]
        images = images.mT.contiguous()
    return images


def zoom_matrix(factor: float) -> Float[Tensor, "32 32"]:
    """The matrix that enlarges the centre of an image to its full size by linear interpolation."""
    crop = math.ceil(SIDE / factor)
    size = round(crop * factor)
    first = (size - SIDE) // 2
    steps = first + torch.arange(SIDE, dtype=torch.double)
    return linear_matrix((SIDE - crop) // 2 + steps * (crop - 1) / (size - 1), SIDE)


def linear_matrix(places: Float[Tensor, "I"], size: int) -> Float[Tensor, "I {size}"]:
    """The matrix that interpolates a row of `size` pixels linearly: Aᵢⱼ = max(0, 1 − |placeᵢ − j|)."""
    return (1 - (places[:, None] - torch.arange(size)).abs()).clamp(min=0)


def correlate(
    images: Float[Tensor, "*axes H W"], kernel: Float[Tensor, "k k"], *, border: str
) -> Float[Tensor, "*axes H W"]:
    """Σᵢⱼ kᵢⱼ x(p + (i, j)) around each pixel p; `border` is a mode of `torch.nn.functional.pad`."""
    *_, H, W = images.shape
    reach = len(kernel) // 2
    stack = images.reshape(-1, 1, H, W)
    padded = F.pad(stack, (reach, reach, reach, reach), mode=border)
    total = torch.zeros_like(stack)
    for i, j in kernel.nonzero().tolist():
        total.add_(padded[..., i : i + H, j : j + W], alpha=float(kernel[i, j]))
    return total.view(images.shape)
