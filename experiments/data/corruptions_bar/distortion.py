"""Distortions by linear interpolation between pixels, black beyond the border: pinch and twirl, ripple."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.blur import take
from experiments.data.corruptions.filters import SIDE

__all__ = ["interpolated", "pinch_and_twirl", "ripple", "twirled_places"]

CELLS, CELL = 3, 10  # per axis, and their side in pixels; the last two rows and columns are outside


def pinch_and_twirl(
    images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """Images with 3 × 3 disks pinched by 0.1 + 0.04·level and twirled by ±level·π/20 at random, see `twirled_places`.

    The second version of the benchmark, which is the one in the published set.
    """
    signs = 2 * torch.randint(2, (len(images), CELLS, CELLS), generator=generator, device=images.device) - 1
    return interpolated(images.double(), twirled_places(signs * level * torch.pi / 20, 0.1 + 0.04 * level))


def twirled_places(angles: Float[Tensor, "N 3 3"], pinch: float) -> Float[Tensor, "N 32 32 2"]:
    """c + sin(πd/2)^−pinch R(angle·(1 − d)²) (p − c), the positions (down, right) that pixels p come from.

    c is the centre of a cell, and d = |p − c| / 5. Pixels with d > 1 do not move, nor do centres.
    """
    pixels = torch.arange(SIDE, device=angles.device)
    rows, columns = torch.meshgrid(pixels, pixels, indexing="ij")
    down, right = rows % CELL - CELL // 2, columns % CELL - CELL // 2  # p − c
    d = torch.hypot(down.double(), right.double()) / (CELL / 2)
    moves = (d > 0) & (d <= 1) & (rows.maximum(columns) < CELLS * CELL)
    scale = torch.where(moves, (torch.pi / 2 * d).sin() ** -pinch, 1)
    per_pixel = angles.repeat_interleave(CELL, dim=1).repeat_interleave(CELL, dim=2)
    turn = F.pad(per_pixel, (0, SIDE - CELLS * CELL) * 2) * torch.where(moves, (1 - d).square(), 0)
    to_row = rows - down + scale * (down * turn.cos() - right * turn.sin())
    to_column = columns - right + scale * (down * turn.sin() + right * turn.cos())
    return torch.stack([to_row, to_column], dim=-1)


def interpolated(x: Float[Tensor, "N 3 32 32"], places: Float[Tensor, "N 32 32 2"]) -> Float[Tensor, "N 3 32 32"]:
    """Images interpolated linearly at positions (down, right), black beyond the border; exact at whole pixels."""
    places = places.clamp(-1, SIDE)
    corners = places.floor()
    down, right = (places - corners).movedim(-1, 0)[:, :, None]
    row, column = corners.long().flatten(1, 2).unbind(-1)
    total = torch.zeros_like(x)
    for step_down, step_right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        i, j = row + step_down, column + step_right
        inside = ((i >= 0) & (i < SIDE) & (j >= 0) & (j < SIDE)).view_as(down)
        weight = (down if step_down else 1 - down) * (right if step_right else 1 - right)
        total += weight * inside * take(x, SIDE * i.clamp(0, SIDE - 1) + j.clamp(0, SIDE - 1))
    return total


def ripple(images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator) -> Float[Tensor, "N 3 32 32"]:
    """x(p + a sin(2πp / λ + φ)) along rows and along columns, with a = 0.08·level pixels.

    Wavelengths λ from 3.2 to 9.6 pixels and phases φ are uniform, and independent for rows and columns.
    """
    lengths, phases = torch.rand((2, 2, len(images), 1), generator=generator, device=images.device, dtype=torch.double)
    pixels = torch.arange(SIDE, device=images.device)
    waves = 2 * torch.pi * (pixels / (SIDE * (0.1 + 0.2 * lengths)) + phases)
    places = pixels + 0.0025 * SIDE * level * waves.sin()  # (2, N, 32)
    rows, columns = (1 - (places[..., None] - pixels).abs()).clamp(min=0)[:, :, None]
    return rows @ images.double() @ columns.mT
