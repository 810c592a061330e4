"""Blur: Gaussian, frosted glass, defocus, motion, zoom."""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.filters import SIDE, correlate, gaussian_filter, unit, zoom_matrix

__all__ = [
    "defocus_blur",
    "disk_kernel",
    "displaced",
    "gaussian_blur",
    "glass_blur",
    "mean_zoom",
    "motion_blur",
    "smeared",
    "take",
    "zoom_blur",
]


def gaussian_blur(images: UInt8[Tensor, "N 3 32 32"], std: float) -> Float[Tensor, "N 3 32 32"]:
    """A Gaussian of `std` pixels around each pixel."""
    return 255 * gaussian_filter(unit(images), std)


def glass_blur(
    images: UInt8[Tensor, "N 3 32 32"], std: float, rounds: int, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """Blurred, then pixels replaced `rounds` times by neighbours above and to the left, then blurred again."""
    mixed = gaussian_blur(images, std).to(torch.uint8)
    for _ in range(rounds):
        steps = torch.randint(-1, 1, (2, len(images), SIDE, SIDE), generator=generator, device=images.device)
        mixed = displaced(mixed, steps)
    return gaussian_blur(mixed, std)


def displaced(images: Shaped[Tensor, "N 3 32 32"], steps: Int[Tensor, "2 N 32 32"]) -> Shaped[Tensor, "N 3 32 32"]:
    """x(p + step(p)), where steps (down, right) are 0 or −1; the first two rows and columns are unchanged.

    The benchmark swaps pixels from the last to the first. Both sides are views of one array, so the second half of each
    swap has no effect; steps lead only to pixels not yet visited, so the order does not matter.
    """
    down, right = steps
    moves = torch.zeros_like(down)
    moves[:, 2:, 2:] = (SIDE * down + right)[:, 2:, 2:]
    source = moves.flatten(1) + torch.arange(SIDE * SIDE, device=images.device)
    return take(images, source)


def take(images: Shaped[Tensor, "N c 32 32"], pixels: Int[Tensor, "N 1024"]) -> Shaped[Tensor, "N c 32 32"]:
    """Each image with its pixels gathered from the given positions, the same for all channels."""
    N, channels, *_ = images.shape
    return images.flatten(2).gather(2, pixels[:, None].expand(N, channels, SIDE * SIDE)).view_as(images)


def defocus_blur(images: UInt8[Tensor, "N 3 32 32"], radius: float, smoothing: float) -> Float[Tensor, "N 3 32 32"]:
    """The mean over a disk whose rim is smoothed by a 3 × 3 Gaussian of `smoothing` pixels."""
    return 255 * correlate(unit(images), disk_kernel(radius, smoothing), border="reflect")


def disk_kernel(radius: float, smoothing: float) -> Float[Tensor, "17 17"]:
    """Weights of the pixels of a disk with a smoothed rim, centred in 17 × 17 pixels.

    They are rounded to float32 as in the benchmark, which decides whether their sum, and thus white, is below 1.
    """
    x = torch.arange(-8, 9)
    disk = (x.square() + x[:, None].square() <= radius**2).float()
    rim = torch.exp(-0.5 * (torch.arange(-1, 2).double() / smoothing).square())
    rim = (rim / rim.sum()).float()
    return correlate(disk / disk.sum(), torch.outer(rim, rim), border="reflect").double()


def motion_blur(
    images: UInt8[Tensor, "N 3 32 32"], radius: int, std: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """Each pixel averaged with those to its right, along a line at an angle between −45° and 45°."""
    turns = torch.rand(len(images), generator=generator, device=images.device)
    return smeared(images, radius, std, 90 * turns - 45)


def smeared(
    images: UInt8[Tensor, "N c 32 32"], radius: int, std: float, degrees: Float[Tensor, "N"]
) -> Float[Tensor, "N c 32 32"]:
    """Σᵢ wᵢ x(p + i·direction) with wᵢ ∝ exp(−i² / 2σ²), i = 0 … 2·radius, in integer grey levels.

    ImageMagick's motion blur: one-sided, steps rounded to pixels, the last pixel repeated beyond the border.
    """
    steps = torch.arange(2 * radius + 1, device=images.device)
    weights = torch.exp(-0.5 * (steps / std).square())
    down, right = (
        (steps[:, None] * direction - 0.5).ceil().long()
        for direction in (degrees.deg2rad().sin(), degrees.deg2rad().cos())
    )
    x = images.float()
    total = torch.zeros_like(x)
    for weight, move_down, move_right in zip(weights / weights.sum(), down, right, strict=True):
        total += weight * take(x, _moved(move_down, move_right))
    return (total + 0.5).floor()


def _moved(down: Int[Tensor, "N"], right: Int[Tensor, "N"]) -> Int[Tensor, "N 1024"]:
    """Positions of the pixels `down` rows below and `right` columns to the right, clamped to the image."""
    pixels = torch.arange(SIDE, device=down.device)
    rows, columns = ((pixels + move[:, None]).clamp(0, SIDE - 1) for move in (down, right))
    return (SIDE * rows[:, :, None] + columns[:, None, :]).flatten(1)


def zoom_blur(images: UInt8[Tensor, "N 3 32 32"], end: float) -> Float[Tensor, "N 3 32 32"]:
    """The mean of the image and its enlargements by 1, 1.01, … to about `end`."""
    x = unit(images)
    return 255 * (x.flatten(2) @ mean_zoom(end).to(x)).view_as(x).float()


@lru_cache(maxsize=1)
def mean_zoom(end: float) -> Float[Tensor, "1024 1024"]:
    """The matrix of the mean over the enlargements, multiplied from the right to images as rows of 1024 pixels."""
    zooms = [torch.eye(SIDE, dtype=torch.double), *(zoom_matrix(factor) for factor in np.arange(1, end, 0.01))]
    total = torch.zeros(SIDE**2, SIDE**2, dtype=torch.double)
    for zoom in zooms:
        total += torch.kron(zoom, zoom)
    return total.mT / len(zooms)
