"""Residual networks for small images: 3 stages of 16, 32 and 64 channels, depth 6n + 2 (He et al. 2016)."""

from typing import no_type_check

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["AverageOverPixels", "Residual", "lite_resnet_features", "resnet", "resnet_features"]

WIDTHS = (16, 32, 64)


def resnet(depth: int, num_classes: int, *, in_channels: int = 3) -> nn.Sequential:
    """ResNet-20, 56, 110, … with BatchNorm, parameter-free shortcuts, and a linear read-out.

    Example:
        >>> resnet(20, num_classes=10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(*resnet_features(depth, in_channels=in_channels), nn.Linear(WIDTHS[-1], num_classes))


def resnet_features(depth: int, *, in_channels: int = 3) -> nn.Sequential:
    """The same network without its read-out: images (N, C, H, W) to 64 features; a backbone for weight sharing.

    Example:
        >>> resnet_features(20)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 64])
    """
    blocks: list[nn.Module] = []
    for fan_in, fan_out, stride in _plan(depth):
        blocks.append(Residual(fan_in, fan_out, stride))
    return nn.Sequential(
        _convolution(in_channels, WIDTHS[0]), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU(), *blocks, AverageOverPixels()
    )


def lite_resnet_features(depth: int, *, in_channels: int = 3) -> nn.Sequential:
    """The same convolutions without BatchNorm and shortcuts: for the prior, where both are harmful.

    Example:
        >>> lite_resnet_features(8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 64])
    """
    layers: list[nn.Module] = [_convolution(in_channels, WIDTHS[0]), nn.ReLU()]
    for fan_in, fan_out, stride in _plan(depth):
        layers += [_convolution(fan_in, fan_out, stride), nn.ReLU(), _convolution(fan_out, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, AverageOverPixels())


class Residual(nn.Module):
    """Two convolutions and a shortcut, which strides over pixels and pads channels with zeros where shapes differ."""

    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _convolution(fan_in, fan_out, stride), nn.BatchNorm2d(fan_out)
        self.conv2, self.norm2 = _convolution(fan_out, fan_out), nn.BatchNorm2d(fan_out)
        self.stride = stride
        self.added = (fan_out - fan_in) // 2  # channels on each side

    @no_type_check  # traced with what is not a tensor
    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.added:
            x = F.pad(x, (0, 0, 0, 0, self.added, self.added))
        return F.relu(inner + x)


class AverageOverPixels(nn.Module):
    """(N, C, H, W) to the mean of each channel, (N, C)."""

    @no_type_check
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def _plan(depth: int) -> list[tuple[int, int, int]]:
    """Channels in, channels out and stride of each block."""
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"depth must be 6n + 2 (8, 14, 20, 56, 110, …), but it is {depth}")
    count = (depth - 2) // 6
    plan = []
    for stage, width in enumerate(WIDTHS):
        for block in range(count):
            first = stage > 0 and block == 0
            plan.append((WIDTHS[stage - 1] if first else width, width, 2 if first else 1))
    return plan


def _convolution(fan_in: int, fan_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=False)
