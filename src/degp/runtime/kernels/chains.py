"""L narrow 3 × 3 convolutions with ReLUs between them as one operation, for inference only.

    x ← ReLU(Kₗ * x),    l = 1 … L

A convolution of 16 channels does so little arithmetic per number that a GPU spends its time on reading and writing.
In one kernel, a few images of one network stay with the processor that began on them, from the first layer to the last,
and the ReLUs need no pass of their own.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from degp.runtime.kernels.layout import by_pixels, channels_second
from degp.runtime.kernels.measured import MeasuredKernel
from degp.runtime.kernels.narrow import by_taps, has_kernel, plain

__all__ = ["has_chain_kernel", "one_by_one", "run_chain"]


def has_chain_kernel(x: Float[Tensor, "N MC H W"], kernels: list[Float[Tensor, "M C C 3 3"]]) -> bool:
    """Whether one kernel can run the chain: sizes and precision of `has_kernel`, and no gradient is needed."""
    differentiable = torch.is_grad_enabled() and any(value.requires_grad for value in (x, *kernels))
    return has_kernel(x, kernels[0]) and not differentiable


def run_chain(x: Float[Tensor, "N MC H W"], kernels: list[Float[Tensor, "M C C 3 3"]]) -> Float[Tensor, "N MC H W"]:
    """The chain of M networks, in the precision of x."""
    stacked = by_taps(torch.stack(kernels, 1)).to(x.dtype)
    return channels_second(torch.ops.degp.chain(by_pixels(x), stacked))


# The operation, opaque to torch.compile ---------------------------------------------------------------------------


def one_by_one(x: Float[Tensor, "N H W MC"], kernels: Float[Tensor, "M L C 3 3 C"]) -> Float[Tensor, "N H W MC"]:
    """ReLU(K_L * … ReLU(K₁ * x)) in plain PyTorch."""
    for kernel in kernels.unbind(1):
        x = F.relu(plain(x, kernel))
    return x


_operation = torch.library.custom_op(
    "degp::chain", MeasuredKernel(one_by_one, "chain"), mutates_args=(), schema="(Tensor x, Tensor kernels) -> Tensor"
)
_operation.register_fake(lambda x, kernels: torch.empty_like(x, memory_format=torch.contiguous_format))
