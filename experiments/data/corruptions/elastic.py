"""Elastic transform: a random affine map followed by random smooth displacements."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.filters import SIDE, gaussian_filter, reflected, unit

__all__ = ["affine_places", "elastic_transform", "pixel_places", "sampled"]

CORNERS = ((26, 26), (26, 6), (6, 6))  # (x, y)


def elastic_transform(
    images: UInt8[Tensor, "N 3 32 32"], strength: float, std: float, shift: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """Images under a random affine map, displaced pixel by pixel by Gaussian-smoothed noise in ±`strength`.

    The map shifts three corners of a square by up to `shift` pixels in each direction.
    """
    N, device = len(images), images.device
    shifts = torch.rand((N, 3, 2), generator=generator, device=device, dtype=torch.double)
    noise = torch.rand((2, N, SIDE, SIDE), generator=generator, device=device, dtype=torch.double)
    displacement = strength * gaussian_filter(2 * noise - 1, std, truncate=3.0, border=reflected)  # (x, y) first
    moved = sampled(unit(images), affine_places(shift * (2 * shifts - 1)), mirror=0.0)
    return 255 * sampled(moved, pixel_places(device) + displacement.movedim(0, -1), mirror=0.5).float()


def affine_places(shifts: Float[Tensor, "N 3 2"]) -> Float[Tensor, "N 32 32 2"]:
    """The positions (x, y) that pixels come from under the affine maps p ↦ Aᵀp + b that shift the three corners.

    q = A⁻ᵀ(p − b), rounded to 1/32 pixel in two steps, as in OpenCV.
    """
    corners = shifts.new_tensor(CORNERS)
    A, b = torch.linalg.solve(F.pad(corners, (0, 1), value=1), corners + shifts).split((2, 1), dim=1)
    inverse = torch.linalg.inv(A)
    pixels = torch.arange(SIDE, device=shifts.device, dtype=shifts.dtype)[:, None]
    x_part = (1024 * pixels * inverse[:, :1]).round()  # (N, 32, 2)
    y_part = (1024 * (pixels * inverse[:, 1:] - b @ inverse)).round()
    return ((x_part[:, None] + y_part[:, :, None] + 16) / 32).floor() / 32


def pixel_places(device: torch.device) -> Float[Tensor, "32 32 2"]:
    """The position (x, y) of each pixel."""
    pixels = torch.arange(SIDE, device=device, dtype=torch.double)
    return torch.stack(torch.meshgrid(pixels, pixels, indexing="xy"), dim=-1)


def sampled(
    x: Float[Tensor, "N 3 32 32"], places: Float[Tensor, "N 32 32 2"], *, mirror: float
) -> Float[Tensor, "N 3 32 32"]:
    """Images interpolated linearly at positions (x, y), mirrored `mirror` pixels beyond the outermost centres."""
    period = 2 * (SIDE - 1 + 2 * mirror)
    wrapped = (places + mirror) % period
    inside = (wrapped.minimum(period - wrapped) - mirror).clamp(0, SIDE - 1)
    return F.grid_sample(x, 2 * inside / (SIDE - 1) - 1, mode="bilinear", padding_mode="border", align_corners=True)
