"""The Triton kernels of `narrow` and `chains`; imported only where there is Triton.

All take images row by row. A tile has as many pixels as a tensor core takes at once, one row of each of a few images;
row y of the inputs ends the sums of row y - 1, goes on with those of row y and begins those of row y + 1.
"""

# Triton reads these functions' source: no shapes in their signatures, and constants in capitals.
# mypy: disable-error-code="no-untyped-def,attr-defined"

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

PLACES = 64  # pixels of a tile
STAGES = 3  # rows under way at once


def narrow(
    x: Float[Tensor, "N H W MC"], kernel: Float[Tensor, "M C C 3 3"], adjoint: bool
) -> Float[Tensor, "N H W MC"]:
    """One convolution of each of M networks, or its adjoint: a program has PLACES/W images of one network."""
    (N, H, W, _), (M, C) = x.shape, kernel.shape[:2]
    images = PLACES // W
    outputs = torch.empty_like(x)
    _narrow[(-(-N // images) * M,)](
        x, kernel.contiguous(), outputs, N, M, C, H, W, images, adjoint, num_warps=C // 8, num_stages=STAGES
    )
    return outputs


def kernel_gradient(
    x: Float[Tensor, "N H W MC"], dy: Float[Tensor, "N H W MC"], kernel: Float[Tensor, "M C C 3 3"]
) -> Float[Tensor, "M C C 3 3"]:
    """Σₙₚ dy[n, p] x[n, p + t]ᵀ for each tap t: a program sums over its images, and PyTorch over the programs."""
    (N, H, W, _), (M, C) = x.shape, kernel.shape[:2]
    images = PLACES // W
    blocks = -(-N // images)
    sums = x.new_empty(blocks, M, 3, 4, C, C, dtype=torch.float32)  # rows and columns of taps, channels in and out
    _kernel_gradient[(blocks * M,)](x, dy, sums, N, M, C, H, W, images, num_warps=4)
    return sums.sum(0)[:, :, :3].permute(0, 4, 3, 1, 2).to(kernel.dtype).contiguous()


def chain(x: Float[Tensor, "N H W MC"], kernels: Float[Tensor, "M L C C 3 3"]) -> Float[Tensor, "N H W MC"]:
    """ReLU(K_L * … ReLU(K₁ * x)) of M networks: a program takes PLACES/W images of one network through all L layers."""
    (N, H, W, _), (M, L, C) = x.shape, kernels.shape[:3]
    images = PLACES // W
    programs = -(-N // images) * M
    scratch = x.new_empty(programs, 2, images * H * W, C)  # what a program writes in one layer and reads in the next
    outputs = torch.empty_like(x)
    _chain[(programs,)](
        x, kernels.contiguous(), scratch, outputs, N, M, L, C, H, W, images, num_warps=C // 8, num_stages=STAGES
    )
    return outputs


@triton.jit
def _part(N, M, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, IMAGES: tl.constexpr):
    """A program's number, its network, how many images there are from its first one on, and where that begins."""
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
    _, member, left, folded = _part(N, M, C, H, W, IMAGES)
    kernel = kernels + member * (9 * C * C)
    _layer(inputs + folded, M * C, outputs + folded, M * C, kernel, left, C, H, W, IMAGES, ADJOINT, False)


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
    program, _, left, folded = _part(N, M, C, H, W, IMAGES)
    stride = M * C  # from a pixel to the next

    place, channel = tl.arange(0, IMAGES * W), tl.arange(0, C)
    image, x = place // W, place % W
    pixel, there = image * (H * W) + x, (image < left)[:, None]
    column = tl.arange(0, 4 * C)  # channels of the pixel to the left, of this one, of the next, and zeros
    shift = column // C - 1
    beside = x[:, None] + shift
    inside = there & (beside >= 0) & (beside < W) & (shift < 2)
    read = inputs + folded + (pixel[:, None] + shift) * stride + column % C
    take = gradients + folded + pixel[:, None] * stride + channel

    above = tl.zeros((IMAGES * W, C), gradients.dtype.element_ty)
    level = tl.load(take, mask=there, other=0.0)
    top = tl.zeros((4 * C, C), tl.float32)  # the sums of a row of taps
    middle = tl.zeros((4 * C, C), tl.float32)
    bottom = tl.zeros((4 * C, C), tl.float32)
    for y in range(H):
        row = tl.trans(tl.load(read + y * W * stride, mask=inside, other=0.0))
        below = tl.load(take + (y + 1) * W * stride, mask=there & (y + 1 < H), other=0.0)
        top = tl.dot(row, below, top)
        middle = tl.dot(row, level, middle)
        bottom = tl.dot(row, above, bottom)
        above, level = level, below
    put = sums + program * (12 * C * C) + column[:, None] * C + channel
    tl.store(put, top)
    tl.store(put + 4 * C * C, middle)
    tl.store(put + 8 * C * C, bottom)


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
    program, member, left, folded = _part(N, M, C, H, W, IMAGES)
    size = IMAGES * H * W * C
    own = scratch + program * 2 * size
    kernel = kernels + member * (LAYERS * 9 * C * C)

    _layer(inputs + folded, M * C, own, C, kernel, left, C, H, W, IMAGES, False, True)
    for layer in range(1, LAYERS - 1):
        source, target = own + (layer + 1) % 2 * size, own + layer % 2 * size
        _layer(source, C, target, C, kernel + layer * (9 * C * C), left, C, H, W, IMAGES, False, True)
    last = kernel + (LAYERS - 1) * (9 * C * C)
    _layer(own + LAYERS % 2 * size, C, outputs + folded, M * C, last, left, C, H, W, IMAGES, False, True)


@triton.jit
def _layer(
    source,
    source_stride,  # from a pixel to the next
    target,
    target_stride,
    kernel,  # (C out, C in, 3, 3)
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
        tap, step = kernel + channel[:, None] * (9 * C) + channel * 9 + 8, -1
    else:
        tap, step = kernel + channel[:, None] * 9 + channel * (9 * C), 1
    k00, k01, k02 = tl.load(tap), tl.load(tap + step), tl.load(tap + 2 * step)
    k10, k11, k12 = tl.load(tap + 3 * step), tl.load(tap + 4 * step), tl.load(tap + 5 * step)
    k20, k21, k22 = tl.load(tap + 6 * step), tl.load(tap + 7 * step), tl.load(tap + 8 * step)

    before = tl.zeros((IMAGES * W, C), tl.float32)
    here = tl.zeros((IMAGES * W, C), tl.float32)
    for y in range(H):
        a = tl.load(read + (y * W - 1) * source_stride, mask=not_first, other=0.0)
        b = tl.load(read + y * W * source_stride, mask=there, other=0.0)
        c = tl.load(read + (y * W + 1) * source_stride, mask=not_last, other=0.0)
        done = tl.dot(c, k22, tl.dot(b, k21, tl.dot(a, k20, before)))
        _put(write + (y - 1) * W * target_stride, done, there & (y > 0), RELU)
        before = tl.dot(c, k12, tl.dot(b, k11, tl.dot(a, k10, here)))
        here = tl.dot(c, k02, tl.dot(b, k01, tl.dot(a, k00)))
    _put(write + (H - 1) * W * target_stride, before, there, RELU)
    tl.debug_barrier()  # the next layer reads what other threads have written here


@triton.jit
def _put(target, sums, there, RELU: tl.constexpr):
    if RELU:
        sums = tl.maximum(sums, 0.0)
    tl.store(target, sums.to(target.dtype.element_ty), mask=there)
