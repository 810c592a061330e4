"""Contrast, brightness, saturation and pixelation."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from experiments.data.corruptions.filters import SIDE, unit

__all__ = [
    "box_matrix",
    "brightness",
    "contrast",
    "hue_saturation_value",
    "pixelate",
    "resized",
    "saturate",
]


def contrast(images: UInt8[Tensor, "N 3 32 32"], factor: float) -> Float[Tensor, "N 3 32 32"]:
    """(x − x̄)·c + x̄ with the mean x̄ of each channel."""
    x = unit(images)
    mean = x.mean((2, 3), keepdim=True)
    return 255 * ((x - mean) * factor + mean)


def brightness(images: UInt8[Tensor, "N 3 32 32"], added: float) -> Float[Tensor, "N 3 32 32"]:
    """The value in HSV increased to v + c, with the same hue and saturation."""
    hue, saturation, value = hue_saturation_value(unit(images))
    return 255 * ((value + added).clamp(max=1) * (1 - saturation * hue))


def saturate(images: UInt8[Tensor, "N 3 32 32"], factor: float, added: float) -> Float[Tensor, "N 3 32 32"]:
    """The saturation in HSV changed to a·s + b, with the same hue and value."""
    hue, saturation, value = hue_saturation_value(unit(images))
    return 255 * (value * (1 - (saturation * factor + added).clamp(0, 1) * hue))


def hue_saturation_value(
    x: Float[Tensor, "N 3 32 32"],
) -> tuple[Float[Tensor, "N 3 32 32"], Float[Tensor, "N 1 32 32"], Float[Tensor, "N 1 32 32"]]:
    """h, s and v with x = v(1 − s·h): HSV, the hue written as h = (v − x) / (v − min x) instead of an angle.

    v = max x, s = (v − min x) / v, and h is the position of each channel between the largest, 0, and the smallest, 1.
    Grey has no hue and counts as red, h = (0, 1, 1).
    """
    value = x.amax(1, keepdim=True)
    chroma = value - x.amin(1, keepdim=True)
    red = x.new_tensor([0.0, 1.0, 1.0])[:, None, None]
    hue = torch.where(chroma > 0, (value - x) / chroma, red)
    return hue, torch.where(chroma > 0, chroma / value, 0), value


def pixelate(images: UInt8[Tensor, "N 3 32 32"], factor: float) -> Float[Tensor, "N 3 32 32"]:
    """Downsampled by means over boxes, and upsampled again."""
    small = int(SIDE * factor)
    return resized(resized(images.float(), box_matrix(SIDE, small)), box_matrix(small, SIDE))


def resized(images: Float[Tensor, "*axes J J"], matrix: Float[Tensor, "I J"]) -> Float[Tensor, "*axes I I"]:
    """A x Aᵀ in integer grey levels, rounded after the rows and again after the columns, as in Pillow."""
    matrix = matrix.to(images)
    rows = (images @ matrix.mT + 0.5).floor()
    return (matrix @ rows + 0.5).floor()


def box_matrix(old: int, new: int) -> Float[Tensor, "{new} {old}"]:
    """The matrix from `old` to `new` pixels, each the mean over the old pixels whose centres lie in its box."""
    scale = old / new
    centres = (torch.arange(new, dtype=torch.double)[:, None] + 0.5) * scale
    distance = (torch.arange(old) + 0.5 - centres) / max(scale, 1)  # in boxes; when upsampling, a box is one old pixel
    inside = ((distance > -0.5) & (distance <= 0.5)).double()
    return inside / inside.sum(1, keepdim=True)
