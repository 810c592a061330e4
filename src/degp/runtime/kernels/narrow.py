"""Narrow convolutions: 3 × 3 over few channels, as many after as before, for M networks at once.

    y[n, p, m] = Σₜ K[m, t] x[n, p + t, m],    t ∈ {-1, 0, 1}²

cuDNN's tiles have 64 channels, and with 16 per network three quarters of them are zeros. A kernel of our own takes the
images of one network row by row: each row is read once and added to the three rows around it. Its gradients are

    dx = K* dy                                 K reversed, with its channels exchanged: the same kernel again
    dK[m, t] = Σₙₚ dy[n, p, m] x[n, p + t, m]ᵀ
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from degp.runtime.kernels.layout import by_pixels, channels_second
from degp.runtime.kernels.measured import MeasuredKernel

__all__ = ["CHANNELS", "by_taps", "has_kernel", "is_narrow", "narrow_convolution", "plain", "plain_gradient"]

CHANNELS = (16, 32)  # per network
ROW = (8, 16, 32, 64)  # pixels
HALVES = (torch.bfloat16, torch.float16)


def is_narrow(layer: nn.Conv2d) -> bool:
    """Whether a layer is such a convolution; `has_kernel` checks that its channels are few."""
    equal = layer.in_channels == layer.out_channels and layer.groups == 1 and layer.bias is None
    return (
        equal
        and layer.kernel_size == (3, 3)
        and layer.padding == (1, 1)
        and layer.padding_mode == "zeros"
        and layer.stride == layer.dilation == (1, 1)
    )


def has_kernel(x: Float[Tensor, "N MC H W"], kernel: Float[Tensor, "M C C 3 3"]) -> bool:
    """Whether our kernel supports it: in half precision, on a GPU, for rows that fill its tiles."""
    fits = kernel.shape[1] in CHANNELS and x.shape[3] in ROW and x.dtype in HALVES
    return fits and x.device.type == "cuda"


def narrow_convolution(x: Float[Tensor, "N MC H W"], kernel: Float[Tensor, "M C C 3 3"]) -> Float[Tensor, "N MC H W"]:
    """The convolutions of all networks, in the precision of x."""
    return channels_second(torch.ops.degp.narrow(by_pixels(x), by_taps(kernel).to(x.dtype), False))


def by_taps(kernel: Float[Tensor, "... C C 3 3"]) -> Float[Tensor, "... C 3 3 C"]:
    """Input channels last, as tensor cores need them."""
    return kernel.movedim(-3, -1).contiguous()


# The operations, opaque to torch.compile --------------------------------------------------------------------------


def plain(
    x: Float[Tensor, "N H W MC"], kernel: Float[Tensor, "M C 3 3 C"], adjoint: bool = False
) -> Float[Tensor, "N H W MC"]:
    """K x, or K* x, in plain PyTorch."""
    convolve = F.conv_transpose2d if adjoint else F.conv2d
    y = convolve(channels_second(x), channels_second(kernel.flatten(0, 1)), padding=1, groups=len(kernel))
    return by_pixels(y)


def plain_gradient(
    x: Float[Tensor, "N H W MC"], dy: Float[Tensor, "N H W MC"], kernel: Float[Tensor, "M C 3 3 C"]
) -> Float[Tensor, "M C 3 3 C"]:
    """dK in plain PyTorch."""
    once, none = (1, 1), (0, 0)
    _, found, _ = torch.ops.aten.convolution_backward(
        channels_second(dy),
        channels_second(x),
        channels_second(kernel.flatten(0, 1)),
        bias_sizes=None,
        stride=once,
        padding=once,
        dilation=once,
        transposed=False,
        output_padding=none,
        groups=len(kernel),
        output_mask=(False, True, False),
    )
    return by_pixels(found).unflatten(0, (len(kernel), -1))


_operation = torch.library.custom_op(
    "degp::narrow",
    MeasuredKernel(plain, "narrow"),
    mutates_args=(),
    schema="(Tensor x, Tensor kernel, bool adjoint) -> Tensor",
)
_operation.register_fake(lambda x, kernel, adjoint: torch.empty_like(x, memory_format=torch.contiguous_format))
_gradient_operation = torch.library.custom_op(
    "degp::narrow_kernel_gradient",
    MeasuredKernel(plain_gradient, "kernel_gradient"),
    mutates_args=(),
    schema="(Tensor x, Tensor dy, Tensor kernel) -> Tensor",
)
_gradient_operation.register_fake(lambda x, dy, kernel: torch.empty_like(kernel, memory_format=torch.contiguous_format))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
    x, kernel, ctx.adjoint = inputs
    ctx.save_for_backward(x, kernel)


def _gradients(ctx: Any, dy: Float[Tensor, "N H W MC"]) -> tuple[Tensor | None, Tensor | None, None]:
    x, kernel = ctx.saved_tensors
    dy = dy.contiguous()
    ends = (dy, x) if ctx.adjoint else (x, dy)  # ⟨y, K*x⟩ = ⟨Ky, x⟩: inputs and outputs change places
    dx = torch.ops.degp.narrow(dy, kernel, not ctx.adjoint) if ctx.needs_input_grad[0] else None
    dk = torch.ops.degp.narrow_kernel_gradient(*ends, kernel) if ctx.needs_input_grad[1] else None
    return dx, dk, None


_operation.register_autograd(_gradients, setup_context=_save)
