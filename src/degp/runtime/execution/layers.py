"""Grouped forms of single layers: convolutions and layers without weights on activations (N, M·C, H, W)."""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from degp.runtime.execution.strategies import Tensors
from degp.runtime.kernels.layout import channels_last, channels_second
from degp.runtime.kernels.narrow import has_kernel, is_narrow, narrow_convolution

__all__ = ["Convolution", "Pixelwise", "as_product", "strided_by_blocks"]

SMALL = 64  # numbers per window


@dataclass(frozen=True)
class Convolution:
    """M convolutions as one grouped convolution; over inputs that all members share, one with M times the kernels."""

    name: str
    layer: nn.Conv2d
    shared: bool  # its inputs are (N, C, H, W)

    def __call__(self, state: Tensors, x: Tensor) -> Tensor:
        layer, weight = self.layer, state[f"{self.name}.weight"]
        groups = 1 if self.shared else len(weight) * layer.groups
        kernel = weight.flatten(0, 1)
        bias = state[f"{self.name}.bias"].flatten() if layer.bias is not None else None
        if not self.shared and is_narrow(layer) and has_kernel(x, weight):
            return narrow_convolution(x, weight)
        if self.has_small_windows and x.device.type == "cuda":
            return as_product(x, kernel, bias, layer.stride[0], int(layer.padding[0]))
        if self._strided and x.device.type == "cuda":
            return strided_by_blocks(x, kernel, bias, layer.stride[0], int(layer.padding[0]), groups)
        return F.conv2d(x, channels_last(kernel), bias, layer.stride, layer.padding, layer.dilation, groups)

    @property
    def has_small_windows(self) -> bool:
        """Whether it takes the inputs themselves, with few numbers per window."""
        return self.shared and self._square and math.prod(self.layer.weight.shape[1:]) <= SMALL

    @property
    def _strided(self) -> bool:
        return self._square and self.layer.stride != (1, 1)

    @property
    def _square(self) -> bool:
        sizes = (self.layer.stride, self.layer.kernel_size, self.layer.padding)
        return all(isinstance(size, tuple) and len({*size}) == 1 for size in sizes) and self.layer.dilation == (1, 1)


@dataclass(frozen=True)
class Pixelwise:
    """A layer without weights that treats all channels alike."""

    layer: nn.Module

    def __call__(self, state: Tensors, x: Tensor) -> Tensor:
        return self.layer(x)


def as_product(
    x: Float[Tensor, "N C H W"],
    kernel: Float[Tensor, "K C k k"],
    bias: Float[Tensor, "K"] | None,
    stride: int,
    padding: int,
) -> Float[Tensor, "N K h w"]:
    """A convolution over few channels as one matrix product: one row per pixel's window, one column per kernel.

    cuDNN has no tensor-core kernel for three channels and many kernels, as in the first layer of M networks. The rows
    take no more memory than outputs of 64 channels, and M networks together have at least these.
    """
    k, missing = kernel.shape[-1], -kernel[0].numel() % 8  # tensor cores take eight numbers at once
    windows = F.pad(x, (padding,) * 4).unfold(2, k, stride).unfold(3, k, stride)
    rows = windows.permute(0, 2, 3, 1, 4, 5).flatten(3)
    y = F.linear(F.pad(rows, (0, missing)), F.pad(kernel.flatten(1), (0, missing)))
    return channels_second(y if bias is None else y + bias.to(y))


def strided_by_blocks(
    x: Float[Tensor, "N C H W"],
    kernel: Float[Tensor, "K D k k"],
    bias: Float[Tensor, "K"] | None,
    stride: int,
    padding: int,
    groups: int,
) -> Float[Tensor, "N K h w"]:
    """A convolution of stride s as one of stride 1, over blocks of s × s pixels whose pixels are channels.

    The kernel is padded with zeros to a multiple of s and cut into blocks likewise. The sums are the same. cuDNN has
    fast grouped convolutions of stride 1 on tensor cores where groups have as many kernels as channels; it runs others
    group by group, or copies. So groups are padded with kernels of zeros, whose results are dropped.
    """
    k, width = kernel.shape[-1], len(kernel) // groups
    blocks = -(-k // stride)  # of the kernel, rounded up
    ends = [stride * ((size + 2 * padding - k) // stride + blocks) - size - padding for size in x.shape[2:]]
    inputs = _by_blocks(F.pad(x, (padding, ends[1], padding, ends[0])), stride, groups)
    kernels = _by_blocks(F.pad(kernel, (0, blocks * stride - k) * 2), stride, 1)
    missing = max(0, kernels.shape[1] - width) if groups > 1 else 0
    if missing:
        kernels = F.pad(kernels.unflatten(0, (groups, width)), (0, 0) * 3 + (0, missing)).flatten(0, 1)
    y = F.conv2d(inputs, channels_last(kernels), groups=groups)
    if missing:
        y = channels_second(y.permute(0, 2, 3, 1).unflatten(3, (groups, -1))[..., :width].flatten(3))
    return y if bias is None else y + bias.to(y).view(-1, 1, 1)


def _by_blocks(x: Float[Tensor, "N GC H W"], size: int, groups: int) -> Float[Tensor, "N GCss h w"]:
    """Blocks of size × size pixels as channels: those of a group adjacent, and within it those of a pixel."""
    N, channels, H, W = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(N, H // size, size, W // size, size, groups, channels // groups)
    return channels_second(pixels.permute(0, 1, 3, 5, 2, 4, 6).flatten(3))
