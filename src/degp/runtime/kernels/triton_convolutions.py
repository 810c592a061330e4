"""The Triton kernels of `narrow` and `chains`; imported only where Triton is installed.

All process images row by row. A tile has as many pixels as a tensor core takes at once, one row of each of a few
images; row y of the inputs completes the sums of row y - 1, adds to those of row y and begins those of row y + 1. In a
kernel's gradient it meets these three rows, and its pixels their neighbours, in one product.
"""

# Triton reads these functions' source: no shapes in their signatures, and constants in capitals.
# mypy: disable-error-code="no-untyped-def,attr-defined"

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

__all__ = ["CHAIN", "FORWARD", "GRADIENT", "Tile", "chain", "kernel_gradient", "narrow"]


@dataclass(frozen=True)
class Tile:
    """The block of pixels that a program processes at a time, and its launch settings."""

    places: int  # pixels
    warps: int
    stages: int  # rows in flight

    def images(self, W: int) -> int:
        """How many images have a row in it."""
        return max(1, self.places // W)

    @property
    def tuning(self) -> dict[str, Any]:
        """The launch options in Triton's names."""
        return {"num_warps": self.warps, "num_stages": self.stages}


# The fastest on an H200, by channels; `python -m benchmarks tiles` searches on the GPU at hand
FORWARD = {16: Tile(32, 1, 3), 32: Tile(64, 4, 3)}
GRADIENT = {16: Tile(64, 8, 4), 32: Tile(64, 8, 3)}
CHAIN = {16: Tile(64, 2, 4), 32: Tile(64, 4, 4)}


def narrow(
    x: Float[Tensor, "N H W MC"], kernel: Float[Tensor, "M C 3 3 C"], adjoint: bool
) -> Float[Tensor, "N H W MC"]:
    """One convolution of each of M networks, or its adjoint: a program takes a few images of one network."""
    (N, H, W, _), (M, C) = x.shape, kernel.shape[:2]
    tile = FORWARD[C]
    images = tile.images(W)
    programs = -(-N // images) * M
    outputs = torch.empty_like(x, memory_format=torch.contiguous_format)
    _narrow[(programs,)](x.contiguous(), kernel.contiguous(), outputs, N, M, C, H, W, images, adjoint, **tile.tuning)
    return outputs


def kernel_gradient(
    x: Float[Tensor, "N H W MC"], dy: Float[Tensor, "N H W MC"], kernel: Float[Tensor, "M C 3 3 C"]
) -> Float[Tensor, "M C 3 3 C"]:
    """Σₙₚ dy[n, p] x[n, p + t]ᵀ for each tap t: a program sums over its images, and PyTorch over the programs."""
    (N, H, W, _), (M, C) = x.shape, kernel.shape[:2]
    tile = GRADIENT[C]
    images = tile.images(W)
    blocks = -(-N // images)
    sums = x.new_empty(blocks, *kernel.shape, dtype=torch.float32)
    _kernel_gradient[(blocks * M,)](x.contiguous(), dy.contiguous(), sums, N, M, C, H, W, images, **tile.tuning)
    return sums.sum(0).to(kernel.dtype)


def chain(x: Float[Tensor, "N H W MC"], kernels: Float[Tensor, "M L C 3 3 C"]) -> Float[Tensor, "N H W MC"]:
    """ReLU(K_L * … ReLU(K₁ * x)) of M networks: a program takes a few images of one network through all L layers."""
    (N, H, W, _), (M, L, C) = x.shape, kernels.shape[:3]
    tile = CHAIN[C]
    images = tile.images(W)
    programs = -(-N // images) * M
    scratch = x.new_empty(programs, 2, images * H * W, C)  # a program writes it in one layer, reads it in the next
    outputs = torch.empty_like(x, memory_format=torch.contiguous_format)
    _chain[(programs,)](x.contiguous(), kernels.contiguous(), scratch, outputs, N, M, L, C, H, W, images, **tile.tuning)
    return outputs


@triton.jit
def _part(N, M, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, IMAGES: tl.constexpr):
    """A program's number, its network, the number of images from its first one on, and the offset of that one."""
    program = tl.program_id(0).to(tl.int64)
    first, member = IMAGES * (program // M), program % M
    return program, member, N - first, first * (H * W * C) * M + member * C


@triton.jit
def _narrow(
    inputs,
    kernels,
    outputs,
    N,
    M,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    IMAGES: tl.constexpr,
    ADJOINT: tl.constexpr,
):
    _, member, left, offset = _part(N, M, C, H, W, IMAGES)
    kernel = kernels + member * (9 * C * C)
    _layer(inputs + offset, M * C, outputs + offset, M * C, kernel, left, C, H, W, IMAGES, ADJOINT, False)


@triton.jit
def _kernel_gradient(
    inputs,
    gradients,
    sums,
    N,
    M,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    IMAGES: tl.constexpr,
):
    program, _, left, offset = _part(N, M, C, H, W, IMAGES)
    stride = M * C  # from a pixel to the next

    place, column = tl.arange(0, IMAGES * W), tl.arange(0, 4 * C)
    image, x = place // W, place % W
    pixel = (image * (H * W) + x)[:, None]
    tap, channel = column // C, column % C  # three taps, and a fourth of zeros: a tile's sides are powers of two
    there = (image < left)[:, None] & (tap < 3)
    beside = x[:, None] + tap - 1
    inside = there & (beside >= 0) & (beside < W)
    read = inputs + offset + (pixel + tap - 1) * stride + channel
    take = gradients + offset + (pixel + (1 - tap) * W) * stride + channel

    total = tl.zeros((4 * C, 4 * C), tl.float32)  # by columns of taps and channels in, by rows of taps and channels out
    for y in range(H):
        row = tl.load(read + y * W * stride, mask=inside, other=0.0)
        above = y + 1 - tap  # the row of gradients that a row of taps connects with this one
        rows = tl.load(take + y * W * stride, mask=there & (above >= 0) & (above < H), other=0.0)
        total = tl.dot(tl.trans(row), rows, total)
    put = sums + program * (9 * C * C) + channel * (9 * C) + tap * (3 * C) + column[:, None]
    tl.store(put, total, mask=(column[:, None] < 3 * C) & (tap < 3))


@triton.jit
def _chain(
    inputs,
    kernels,
    scratch,
    outputs,
    N,
    M,
    LAYERS: tl.constexpr,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    IMAGES: tl.constexpr,
):
    program, member, left, offset = _part(N, M, C, H, W, IMAGES)
    size = IMAGES * H * W * C
    own = scratch + program * 2 * size
    kernel = kernels + member * (LAYERS * 9 * C * C)

    _layer(inputs + offset, M * C, own, C, kernel, left, C, H, W, IMAGES, False, True)
    for layer in range(1, LAYERS - 1):
        source, target = own + (layer + 1) % 2 * size, own + layer % 2 * size
        _layer(source, C, target, C, kernel + layer * (9 * C * C), left, C, H, W, IMAGES, False, True)
    last = kernel + (LAYERS - 1) * (9 * C * C)
    _layer(own + LAYERS % 2 * size, C, outputs + offset, M * C, last, left, C, H, W, IMAGES, False, True)


@triton.jit
def _layer(
    source,
    source_stride,  # from a pixel to the next
    target,
    target_stride,
    kernel,  # (C out, 3, 3, C in)
    left,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    IMAGES: tl.constexpr,
    ADJOINT: tl.constexpr,
    RELU: tl.constexpr,
):
    place, channel = tl.arange(0, IMAGES * W), tl.arange(0, C)
    image, x = place // W, place % W
    pixel = image * (H * W) + x
    read = source + pixel[:, None] * source_stride + channel
    write = target + pixel[:, None] * target_stride + channel
    there = (image < left)[:, None]
    not_first, not_last = there & (x > 0)[:, None], there & (x < W - 1)[:, None]

    if ADJOINT:  # channels exchanged, and from the last tap to the first
        tap, step = kernel + channel[:, None] * (9 * C) + channel + 8 * C, -C
    else:
        tap, step = kernel + channel[:, None] + channel * (9 * C), C
    k00, k01, k02 = tl.load(tap), tl.load(tap + step), tl.load(tap + 2 * step)
    k10, k11, k12 = tl.load(tap + 3 * step), tl.load(tap + 4 * step), tl.load(tap + 5 * step)
    k20, k21, k22 = tl.load(tap + 6 * step), tl.load(tap + 7 * step), tl.load(tap + 8 * step)

    before = tl.zeros((IMAGES * W, C), tl.float32)
    here = tl.zeros((IMAGES * W, C), tl.float32)
    for y in range(H + 1):
        row = read + y * W * source_stride
        a = tl.load(row - source_stride, mask=not_first & (y < H), other=0.0)
        b = tl.load(row, mask=there & (y < H), other=0.0)
        c = tl.load(row + source_stride, mask=not_last & (y < H), other=0.0)
        done = tl.dot(c, k22, tl.dot(b, k21, tl.dot(a, k20, before)))
        if RELU:
            done = tl.maximum(done, 0.0)
        tl.store(write + (y - 1) * W * target_stride, done.to(target.dtype.element_ty), mask=there & (y > 0))
        before = tl.dot(c, k12, tl.dot(b, k11, tl.dot(a, k10, here)))
        here = tl.dot(c, k02, tl.dot(b, k01, tl.dot(a, k00)))
    tl.debug_barrier()  # the next layer reads what other threads wrote here
