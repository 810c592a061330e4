"""Weather: fog, frost, snow."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.blur import smeared
from experiments.data.corruptions.filters import SIDE, both_ways, unit, zoom_matrix

__all__ = ["fog", "frost", "pieces", "plasma", "snow"]

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey


def fog(
    images: UInt8[Tensor, "N 3 32 32"], strength: float, decay: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """(x + s·plasma) · max x / (max x + s): clouds are added, and the maximum is preserved."""
    x = unit(images)
    noise = 2 * torch.rand((len(x), SIDE, SIDE), generator=generator, device=x.device, dtype=x.dtype) - 1
    brightest = x.amax((1, 2, 3), keepdim=True)
    return 255 * ((x + strength * plasma(noise, decay)[:, None]) * brightest / (brightest + strength))


def plasma(noise: Float[Tensor, "N 32 32"], decay: float) -> Float[Tensor, "N 32 32"]:
    """Clouds in [0, 1] by the diamond-square algorithm, periodic in both directions, from noise in [−1, 1].

    Each point is the mean of four neighbours plus w²·noise, first at the centres of squares and then of diamonds. Their
    size halves at each level while w, initially 100, is divided by `decay`. The first point, without neighbours, is 0.
    """
    height = torch.zeros_like(noise)
    step, spread = SIDE, 100.0
    while step >= 2:
        half = step // 2
        corners = height[:, ::step, ::step]
        middles = (_pair(corners, 1) + _pair(corners, 1).roll(-1, 2)) / 4 + spread**2 * noise[:, half::step, half::step]
        height[:, half::step, half::step] = middles
        across = _pair(corners, 2) + middles + middles.roll(1, 1)
        down = _pair(corners, 1) + middles + middles.roll(1, 2)
        height[:, ::step, half::step] = across / 4 + spread**2 * noise[:, ::step, half::step]
        height[:, half::step, ::step] = down / 4 + spread**2 * noise[:, half::step, ::step]
        step, spread = half, spread / decay
    height -= height.amin((1, 2), keepdim=True)
    return height / height.amax((1, 2), keepdim=True)


def _pair(heights: Float[Tensor, "N k k"], axis: int) -> Float[Tensor, "N k k"]:
    """Each height plus the next along an axis, periodic."""
    return heights + heights.roll(-1, axis)


def frost(
    images: UInt8[Tensor, "N 3 32 32"],
    share: float,
    frost_share: float,
    *,
    overlays: Sequence[UInt8[Tensor, "3 _ _"]],
    generator: Generator,
) -> Float[Tensor, "N 3 32 32"]:
    """a·x + b·ice, where the ice is a random piece of a random overlay."""
    N = len(images)
    which = torch.randint(len(overlays), (N,), generator=generator, device=images.device)
    corners = torch.rand((2, N), generator=generator, device=images.device)
    ice = torch.empty_like(images)
    for i, overlay in enumerate(overlays):
        ice[which == i] = pieces(overlay.to(images.device), corners[:, which == i])
    return share * images.double() + frost_share * ice.double()


def pieces(overlay: UInt8[Tensor, "3 H W"], corners: Float[Tensor, "2 n"]) -> UInt8[Tensor, "n 3 32 32"]:
    """Crops of 32 × 32 pixels; `corners` in [0, 1)² are the upper left corners relative to their range."""
    _, H, W = overlay.shape
    top, left = (corners * torch.tensor([[H - SIDE], [W - SIDE]], device=corners.device)).long()
    windows = overlay.unfold(1, SIDE, 1).unfold(2, SIDE, 1)  # (3, H − 31, W − 31, 32, 32), a view
    return windows[:, top, left].movedim(1, 0)


def snow(
    images: UInt8[Tensor, "N 3 32 32"],
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: int,
    smear_std: float,
    share: float,
    *,
    generator: Generator,
) -> Float[Tensor, "N 3 32 32"]:
    """a·x + (1 − a)·max(x, 1.5·grey + 0.5) + flakes + flakes turned by 180°.

    Flakes are Gaussian noise above a threshold, enlarged by `zoom` and smeared downwards at 45° to 135°.
    """
    x = unit(images)
    noise = torch.randn((len(x), SIDE, SIDE), generator=generator, device=x.device, dtype=x.dtype)
    turns = torch.rand(len(x), generator=generator, device=x.device)
    flakes = both_ways(zoom_matrix(zoom), mean + std * noise)
    flakes = flakes.where(flakes >= threshold, 0).clamp(0, 1) * 255
    flakes = smeared(flakes.to(torch.uint8)[:, None], radius, smear_std, 90 * turns - 135) / 255
    whitened = share * x + (1 - share) * x.maximum(1.5 * _grey(x) + 0.5)
    return 255 * (whitened + flakes + flakes.flip(2, 3))


def _grey(x: Float[Tensor, "N 3 32 32"]) -> Float[Tensor, "N 1 32 32"]:
    return (x * x.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
