"""The Triton kernel of `chains`; imported only where there is Triton."""

# Triton reads these functions' source: no shapes in their signatures, and constants in capitals.
# mypy: disable-error-code="no-untyped-def,attr-defined"

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

PLACES = 64  # pixels in a tensor core's tile: so many images that their rows fill it


def launch(x: Float[Tensor, "N H W MC"], kernels: Float[Tensor, "M L C C 3 3"]) -> Float[Tensor, "N H W MC"]:
    """ReLU(W_L * … ReLU(W₁ * x)) of M networks: a program takes PLACES/W images of one network through all L layers."""
    (N, H, W, _), (M, L, C) = x.shape, kernels.shape[:3]
    images = PLACES // W
    programs = -(-N // images) * M
    taps = kernels.permute(0, 1, 4, 5, 3, 2).contiguous()  # (M, L, 3, 3, C in, C out)
    scratch = x.new_empty(programs, 2, images * H * W, C)  # what a program writes in one layer and reads in the next
    outputs = torch.empty_like(x)
    _chain[(programs,)](x, taps, scratch, outputs, N, M, L, C, H, W, images, num_warps=4, num_stages=2)
    return outputs


@triton.jit
def _chain(
    inputs,
    taps,
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
    program = tl.program_id(0).to(tl.int64)
    first, member = IMAGES * (program // M), program % M
    folded = first * (H * W * C) * M + member * C  # of the first image's first pixel
    size = IMAGES * H * W * C
    own = scratch + program * 2 * size
    kernel = taps + member * (LAYERS * 9 * C * C)
    left = N - first  # images from here on: fewer than IMAGES at the end

    _layer(inputs + folded, M * C, own, C, kernel, left, C, H, W, IMAGES)
    for layer in range(1, LAYERS - 1):
        source, target = own + (layer + 1) % 2 * size, own + layer % 2 * size
        _layer(source, C, target, C, kernel + layer * (9 * C * C), left, C, H, W, IMAGES)
    last = kernel + (LAYERS - 1) * (9 * C * C)
    _layer(own + LAYERS % 2 * size, C, outputs + folded, M * C, last, left, C, H, W, IMAGES)


@triton.jit
def _layer(
    source,
    source_stride,  # from a pixel to the next
    target,
    target_stride,
    kernel,
    left,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    IMAGES: tl.constexpr,
):
    """Row by row: row y of the inputs ends the sums of row y - 1, goes on with those of y and begins those of y + 1."""
    place, channel = tl.arange(0, IMAGES * W), tl.arange(0, C)
    image, x = place // W, place % W
    pixel = image * (H * W) + x
    read = source + pixel[:, None] * source_stride + channel
    write = target + pixel[:, None] * target_stride + channel
    there = (image < left)[:, None]
    not_first, not_last = there & (x > 0)[:, None], there & (x < W - 1)[:, None]

    tap = kernel + channel[:, None] * C + channel
    k00, k01, k02 = tl.load(tap), tl.load(tap + C * C), tl.load(tap + 2 * C * C)
    k10, k11, k12 = tl.load(tap + 3 * C * C), tl.load(tap + 4 * C * C), tl.load(tap + 5 * C * C)
    k20, k21, k22 = tl.load(tap + 6 * C * C), tl.load(tap + 7 * C * C), tl.load(tap + 8 * C * C)

    before = tl.zeros((IMAGES * W, C), tl.float32)
    here = tl.zeros((IMAGES * W, C), tl.float32)
    for y in range(H):
        a = tl.load(read + (y * W - 1) * source_stride, mask=not_first, other=0.0)
        b = tl.load(read + y * W * source_stride, mask=there, other=0.0)
        c = tl.load(read + (y * W + 1) * source_stride, mask=not_last, other=0.0)
        done = tl.dot(c, k22, tl.dot(b, k21, tl.dot(a, k20, before)))
        value = tl.maximum(done, 0.0).to(target.dtype.element_ty)
        tl.store(write + (y - 1) * W * target_stride, value, mask=there & (y > 0))
        before = tl.dot(c, k12, tl.dot(b, k11, tl.dot(a, k10, here)))
        here = tl.dot(c, k02, tl.dot(b, k01, tl.dot(a, k00)))
    value = tl.maximum(before, 0.0).to(target.dtype.element_ty)
    tl.store(write + (H - 1) * W * target_stride, value, mask=there)
    tl.debug_barrier()  # the next layer reads what other threads have written here
