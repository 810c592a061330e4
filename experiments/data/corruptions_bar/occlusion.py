"""Grey over parts of the image: cells of a turned checkerboard, and lines."""

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.filters import SIDE

__all__ = ["checkerboard_cutout", "covered_cells", "line_opacity", "lines"]

GREY = 128.0
SMALLEST, LARGEST = 0.1, 0.25  # sides of a cell, relative to the image
FARTHEST = 13  # the number of a cell, from −13 to 13: 31√2 pixels from the origin, in sides of 3.2 pixels


def checkerboard_cutout(
    images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """Grey in a random fraction 0.1·level of the black cells of a checkerboard, x elsewhere.

    The board is turned by a uniform angle around the first pixel; its cells are 3.2 to 8 pixels wide.
    """
    N, K = len(images), 2 * FARTHEST + 1
    angles, sizes = torch.rand((2, N), generator=generator, device=images.device, dtype=torch.double)
    drawn = torch.rand((N, K, K), generator=generator, device=images.device) < level / 10
    covered = covered_cells(2 * torch.pi * angles, SIDE * (SMALLEST + (LARGEST - SMALLEST) * sizes), drawn)
    return torch.where(covered[:, None], GREY, images)


def covered_cells(
    angles: Float[Tensor, "N"], sides: Float[Tensor, "N"], drawn: Bool[Tensor, "N 27 27"]
) -> Bool[Tensor, "N 32 32"]:
    """Whether p is in a cell (a, b) with a + b even that was drawn, where (u, v) = Rᵀp / side and a = ⌊u⌋, b = ⌊v⌋.

    Draws are found at (u, v) truncated towards 0, as in the benchmark, where cells (0, 0) and (−1, −1) share theirs.
    """
    pixels = torch.arange(SIDE, device=angles.device)
    down, right = pixels[:, None], pixels
    cos, sin = ((f(angles) / sides)[:, None, None] for f in (torch.cos, torch.sin))
    u, v = cos * down + sin * right, cos * right - sin * down
    black = (u.floor() + v.floor()) % 2 == 0
    row, column = u.long() + FARTHEST, v.long() + FARTHEST
    K = 2 * FARTHEST + 1
    return black & drawn.flatten(1).gather(1, (K * row + column).flatten(1)).view_as(black)


def lines(images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator) -> Float[Tensor, "N 3 32 32"]:
    """x ← ⌊(1 − v) x + 128 v⌋ for each of ⌊3.2·level⌋ grey lines of opacity v, one after another.

    Lines are 64 pixels long around uniform middles. Their angles are a + 2πs(t − ½), where a and s, from 0.1 to 1, are
    common to the image. Ends are truncated to whole pixels.
    """
    N, device = len(images), images.device
    common, spreads = torch.rand((2, N), generator=generator, device=device, dtype=torch.double)
    x = images.double()
    for _ in range(int(SIDE * level / 10)):
        down, right, t = torch.rand((3, N), generator=generator, device=device, dtype=torch.double)
        angles = 2 * torch.pi * (common + (0.1 + 0.9 * spreads) * (t - 0.5))
        middles = SIDE * torch.stack([down, right], dim=1)
        reach = SIDE * torch.stack([angles.cos(), angles.sin()], dim=1)
        v = line_opacity((middles - reach).trunc(), (middles + reach).trunc())[:, None]
        x = ((1 - v) * x + GREY * v).floor()
    return x


def line_opacity(starts: Float[Tensor, "N 2"], ends: Float[Tensor, "N 2"]) -> Float[Tensor, "N 32 32"]:
    """max(0, 1 − d) with the distance d of each pixel from the line, between perpendiculars through both ends.

    The opacity of Bresenham's anti-aliased line (Zingl 2012).
    """
    pixels = torch.arange(SIDE, device=starts.device)
    down, right = pixels[:, None] - starts[:, 0, None, None], pixels - starts[:, 1, None, None]
    (go_down, go_right), square = (ends - starts).T[:, :, None, None], (ends - starts).square().sum(1)[:, None, None]
    distance = (down * go_right - right * go_down).abs() / square.sqrt()
    along = down * go_down + right * go_right  # from 0 to `square`, exact between whole pixels
    return (1 - distance).clamp(min=0) * ((along >= 0) & (along <= square))
