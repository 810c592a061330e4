"""JPEG compression and decompression, batched: libjpeg's standard tables, chroma at half the resolution.

Steps are rounded where libjpeg rounds. Its 13-bit cosines are exact here, which changes one or two values in a hundred,
mostly by one grey level. Entropy coding is lossless and omitted.
"""

import math

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from experiments.data.corruptions.filters import SIDE, both_ways, linear_matrix

__all__ = ["coded", "cosine_matrix", "doubled", "halved", "jpeg_compression", "quantisation"]

# fmt: off
LUMINANCE = (
    16, 11, 10, 16, 24, 40, 51, 61,
    12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77,
    24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
)
CHROMINANCE = (
    17, 18, 24, 47, 99, 99, 99, 99,
    18, 21, 26, 66, 99, 99, 99, 99,
    24, 26, 56, 99, 99, 99, 99, 99,
    47, 66, 99, 99, 99, 99, 99, 99,
    *[99] * 32,
)
# fmt: on
YCC = ((0.299, 0.587, 0.114), (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411))
RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136286, -0.714136286), (1.0, 1.772, 0.0))
BLOCK = 8


def jpeg_compression(images: UInt8[Tensor, "N 3 32 32"], quality: int) -> Float[Tensor, "N 3 32 32"]:
    """Images after JPEG compression at a quality from 1 to 100."""
    ycc = (_mixed(images.double(), YCC) - 0.5).ceil()  # halves round down: pure blue has a chroma of 127.5
    luma = coded(ycc[:, :1] - 128, quantisation(LUMINANCE, quality)) + 128
    chroma = doubled(coded(halved(ycc[:, 1:]), quantisation(CHROMINANCE, quality)))
    return _rounded(_mixed(torch.cat([luma, chroma], 1), RGB))


def quantisation(table: tuple[int, ...], quality: int) -> Float[Tensor, "8 8"]:
    """Step sizes of the coefficients: the standard table, scaled by 50/quality below 50 and by 2 − quality/50 above."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return torch.tensor([min(max((step * percent + 50) // 100, 1), 255) for step in table]).view(BLOCK, BLOCK).float()


def coded(channels: Float[Tensor, "*axes S S"], steps: Float[Tensor, "8 8"]) -> Float[Tensor, "*axes S S"]:
    """Zero-centred channels after the cosine transform of their blocks, quantisation, and the inverse transform.

    8 D X Dᵀ is rounded after the rows, to quarters, and after the columns; the inverse likewise.
    """
    blocks = channels.shape[-1] // BLOCK
    C = torch.block_diag(*[cosine_matrix()] * blocks).to(channels)  # √8 D
    steps = steps.repeat(blocks, blocks).to(channels)
    eighths = _rounded(C @ _rounded(4 * channels @ C.mT) / 4)
    values = steps * eighths.sign() * ((eighths.abs() + 4 * steps) / (8 * steps)).floor()
    return _rounded(_rounded(4 * C.mT @ values) @ C / 32).clamp(-128, 127)


def cosine_matrix() -> Float[Tensor, "8 8"]:
    """The orthonormal cosine transform times √8: rows of 1 and of √2 cos(π (2i + 1) k / 16), k = 1 … 7."""
    k, i = torch.arange(BLOCK, dtype=torch.double)[:, None], torch.arange(BLOCK)
    matrix = torch.where(k == 0, 1.0, math.sqrt(2) * torch.cos(math.pi * (2 * i + 1) * k / 16))
    return matrix.float()  # in float32 √2 cos(π/4) is exactly 1, so that halves stay exact


def halved(channels: Float[Tensor, "N 2 32 32"]) -> Float[Tensor, "N 2 16 16"]:
    """Means over 2 × 2 pixels, rounded down after adding ¼ in one column and ½ in the next."""
    sums = channels.unflatten(-1, (-1, 2)).unflatten(-3, (-1, 2)).sum((-3, -1))
    bias = channels.new_tensor([1.0, 2.0]).repeat(SIDE // 4)
    return ((sums + bias) / 4).floor()


def doubled(channels: Float[Tensor, "N 2 16 16"]) -> Float[Tensor, "N 2 32 32"]:
    """Upsampled twofold by linear interpolation, rounded half up in one column and half down in the next."""
    places = ((torch.arange(SIDE, dtype=torch.double) - 0.5) / 2).clamp(0, SIDE // 2 - 1)
    bias = channels.new_tensor([8 / 16, 7 / 16]).repeat(SIDE // 2)
    return (both_ways(linear_matrix(places, SIDE // 2), channels) + bias).floor()


def _mixed(images: Float[Tensor, "N 3 32 32"], matrix: tuple[tuple[float, ...], ...]) -> Float[Tensor, "N 3 32 32"]:
    """The channels times a matrix with entries in units of 2⁻¹⁶, as in libjpeg."""
    entries = (images.new_tensor(matrix) * 65536).round() / 65536
    return torch.einsum("dc,nchw->ndhw", entries, images)


def _rounded(values: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    return (values + 0.5).floor()
