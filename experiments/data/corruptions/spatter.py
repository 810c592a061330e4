"""Spatter: drops of water or mud on the lens.

Water follows OpenCV step by step: Canny edges, a 5 × 5 chamfer distance, histogram equalisation.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.filters import SIDE, correlate, gaussian_filter, unit

__all__ = [
    "canny_edges",
    "chamfer_distance",
    "equalised",
    "joined",
    "mud_mask",
    "spatter",
    "water_mask",
]

WATER = (175, 238, 238)  # pale turquoise
MUD = (63, 42, 20)
SOBEL = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
EMBOSS = torch.tensor([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]])
BOX = torch.full((3, 3), 1 / 9, dtype=torch.double)
WEAK, STRONG = 50, 150  # gradients that continue an edge, and that make one
STRAIGHT, DIAGONAL, KNIGHT = 65536, 91750, 143976  # 1, 1.4 and 2.1969 pixels in OpenCV's units of 2⁻¹⁶
FAR = 1 << 28  # larger than any distance, without overflow in sums
DEEPEST = 20  # pixels from an edge


def spatter(
    images: UInt8[Tensor, "N 3 32 32"],
    mean: float,
    std: float,
    blur_std: float,
    threshold: float,
    strength: float,
    mud: bool,
    *,
    generator: Generator,
) -> Float[Tensor, "N 3 32 32"]:
    """Drops where blurred Gaussian noise is above a threshold: x + m·turquoise for water, (1 − m)·x + m·brown for mud.

    `strength` is the maximum of m for water, and for mud the width of the blur at the rim of a drop.
    """
    x = unit(images)
    noise = torch.randn((len(x), SIDE, SIDE), generator=generator, device=x.device, dtype=x.dtype)
    liquid = gaussian_filter(mean + std * noise, blur_std)
    liquid = liquid.where(liquid >= threshold, 0)
    if mud:
        mask = mud_mask(liquid > threshold, strength)[:, None]
        return (1 - mask) * 255 * x + mask * x.new_tensor(MUD)[:, None, None]
    mask = strength * water_mask((255 * liquid).long() % 256)[:, None]  # a byte: values above 255 wrap around
    return 255 * x + mask * x.new_tensor(WATER)[:, None, None]


def mud_mask(drops: Bool[Tensor, "N 32 32"], rim_std: float) -> Float[Tensor, "N 32 32"]:
    """Opacity of mud: drops blurred, and 0 where they are below 0.8."""
    mask = gaussian_filter(drops.double(), rim_std)
    return mask.where(mask >= 0.8, 0)


def water_mask(liquid: Int[Tensor, "N 32 32"]) -> Float[Tensor, "N 32 32"]:
    """Brightness of water, at most 1: its grey level times the embossed distance from the rims of the drops.

    The mask is 0 if nothing shines; the benchmark then divides 0 by 0 and blackens the image.
    """
    depth = chamfer_distance(canny_edges(liquid)).clamp(max=DEEPEST)
    depth = correlate(depth, BOX, border="reflect").float().long()
    relief = correlate(equalised(depth).double(), EMBOSS, border="reflect").clamp(0, 255)
    shine = liquid * correlate(relief, BOX, border="reflect").round()
    return shine / shine.amax((1, 2), keepdim=True).clamp(min=1)


def canny_edges(image: Int[Tensor, "N 32 32"]) -> Bool[Tensor, "N 32 32"]:
    """Pixels where the gradient is a ridge and strong, or weak and connected to a strong one."""
    right = correlate(image.double(), SOBEL, border="replicate")
    down = correlate(image.double(), SOBEL.mT, border="replicate")
    size = right.abs() + down.abs()
    thin = _is_ridge(size, right, down)
    return joined(thin & (size > STRONG), thin & (size > WEAK))


def _is_ridge(
    size: Float[Tensor, "N 32 32"], right: Float[Tensor, "N 32 32"], down: Float[Tensor, "N 32 32"]
) -> Bool[Tensor, "N 32 32"]:
    """Whether the gradient is a local maximum along its own direction, rounded to 45°."""
    padded = F.pad(size, (1, 1, 1, 1))
    slope = 13573 / 32768  # tan 22.5° as in OpenCV

    def at(rows: int, columns: int) -> Float[Tensor, "N 32 32"]:
        return padded[:, 1 + rows : 33 + rows, 1 + columns : 33 + columns]

    level = (size > at(0, -1)) & (size >= at(0, 1))
    upright = (size > at(-1, 0)) & (size >= at(1, 0))
    falling = (size > at(-1, -1)) & (size > at(1, 1))
    rising = (size > at(-1, 1)) & (size > at(1, -1))
    oblique = torch.where((right < 0) == (down < 0), falling, rising)
    steep = torch.where(down.abs() > (2 + slope) * right.abs(), upright, oblique)
    return torch.where(down.abs() < slope * right.abs(), level, steep)


def joined(seeds: Bool[Tensor, "N 32 32"], allowed: Bool[Tensor, "N 32 32"]) -> Bool[Tensor, "N 32 32"]:
    """Seeds and all allowed pixels connected to one through allowed pixels (8-connectivity)."""
    while True:
        padded = F.pad(seeds, (1, 1, 1, 1))
        rows = padded[:, :-2] | padded[:, 1:-1] | padded[:, 2:]
        grown = (rows[:, :, :-2] | rows[:, :, 1:-1] | rows[:, :, 2:]) & allowed
        if torch.equal(grown, seeds):
            return seeds
        seeds = grown


def chamfer_distance(zeros: Bool[Tensor, "N 32 32"]) -> Float[Tensor, "N 32 32"]:
    """Pixels to the nearest zero along steps of 1 (straight), 1.4 (diagonal) and 2.1969 (a knight's move)."""
    distance = torch.where(zeros, 0, FAR)
    for _ in range(2):  # from the top, and then, flipped, from the bottom
        distance = _swept(distance).flip(1, 2)
    return distance.double() / STRAIGHT


def _swept(distance: Int[Tensor, "N 32 32"]) -> Int[Tensor, "N 32 32"]:
    """Distances along paths that come from above, or from the left within a row."""
    steps = STRAIGHT * torch.arange(SIDE, device=distance.device)
    padded = F.pad(distance, (2, 2, 2, 0), value=FAR)
    for row in range(2, SIDE + 2):
        above, two_above, here = padded[:, row - 1], padded[:, row - 2], padded[:, row, 2:-2]
        best = here.minimum(above[:, 2:-2] + STRAIGHT)
        best = best.minimum(above[:, 1:-3].minimum(above[:, 3:-1]) + DIAGONAL)
        best = best.minimum(above[:, :-4].minimum(above[:, 4:]) + KNIGHT)
        best = best.minimum(two_above[:, 1:-3].minimum(two_above[:, 3:-1]) + KNIGHT)
        here.copy_((best - steps).cummin(1).values + steps)
    return padded[:, 2:, 2:-2]


def equalised(depth: Int[Tensor, "N 32 32"]) -> Float[Tensor, "N 32 32"]:
    """Levels 0 … 255 about equally frequent, 255 · (cdf − first) / (1 − first); unchanged if all are equal."""
    levels = torch.arange(DEEPEST + 1, device=depth.device)
    pixels = depth.flatten(1)  # (N, 1024)
    counts = pixels.new_zeros(len(pixels), len(levels)).scatter_add_(1, pixels, torch.ones_like(pixels))
    first = counts.gather(1, pixels.amin(1, keepdim=True))
    others = SIDE**2 - first
    table = ((counts.cumsum(1) - first) * (255 / others.clamp(min=1).float())).round()
    return torch.where(others > 0, table, levels.float()).gather(1, pixels).view(depth.shape)
