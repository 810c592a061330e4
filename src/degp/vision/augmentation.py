"""Random crops, flips and normalisation of images that stay on the device as bytes.

    data = Batch(images, labels).to(device="cuda")
    network = nn.Sequential(Normalise(*CIFAR10_SCALE), resnet)
    outputs = network(CropAndFlip()(data.inputs[rows], generator))

`images` are bytes (N, 3, 32, 32).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor, nn

__all__ = ["CIFAR10_SCALE", "CIFAR100_SCALE", "FASHION_MNIST_SCALE", "CropAndFlip", "Normalise"]

# (mean, std) per channel where 255 counts as 1.
CIFAR10_SCALE = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # those of ImageNet, as in the paper's experiments
CIFAR100_SCALE = ((129.3 / 255, 124.1 / 255, 112.4 / 255), (68.2 / 255, 65.4 / 255, 70.4 / 255))
FASHION_MNIST_SCALE = ((0.5,), (0.5,))  # onto [−1, 1]


class Normalise(nn.Module):
    """(x / 255 − mean) / std per channel of images in uint8.

    The result has the dtype of the buffers, by default float32.

    Args:
        mean: per channel, where 255 counts as 1.
        std: per channel, in the same unit.
        channels_last: whether the result is in channels-last memory format, which tensor cores prefer.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], *, channels_last: bool = False) -> None:
        super().__init__()
        if len(mean) != len(std) or not all(value > 0 for value in std):
            raise ValueError(
                f"there must be one mean and one positive std for each channel, but mean is {mean} and std is {std}; "
                "give as many of both"
            )
        m, s = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (mean, std))  # (C, 1, 1)
        self.register_buffer("scale", (1 / (255 * s)).to(torch.get_default_dtype()))
        self.register_buffer("shift", (-m / s).to(torch.get_default_dtype()))
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format

    def forward(self, images: UInt8[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        return (images * self.scale + self.shift).contiguous(memory_format=self.memory_format)


@dataclass(frozen=True)
class CropAndFlip:
    """A random crop of each zero-padded image, and a horizontal flip with probability ½.

    Padding is 0 before normalisation. All images at once, on their device and without synchronisation, so that a CUDA
    graph can hold it; there the generator must be the default one, or registered with the graph.
    """

    padding: int = 4

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"padding must be 0 or more pixels, but it is {self.padding}; 0 flips only")

    def __call__(
        self, images: UInt8[Tensor, "B C H W"], generator: torch.Generator | None = None
    ) -> UInt8[Tensor, "B C H W"]:
        """The augmented images; the generator must be on their device."""
        corners, flips = self.draw(len(images), images.device, generator)
        return self.apply(images, corners, flips)

    def draw(
        self, num_images: int, device: torch.device, generator: torch.Generator | None = None
    ) -> tuple[Int64[Tensor, "B 2"], Bool[Tensor, "B"]]:
        """Top left corner of each crop in its padded image, from 0 to 2 · padding, and which images to flip."""
        corners = torch.randint(2 * self.padding + 1, (num_images, 2), generator=generator, device=device)
        return corners, torch.randint(2, (num_images,), generator=generator, device=device).bool()

    def apply(
        self, images: UInt8[Tensor, "B C H W"], corners: Int64[Tensor, "B 2"], flips: Bool[Tensor, "B"]
    ) -> UInt8[Tensor, "B C H W"]:
        """The crop of each padded image at its corner, flipped where `flips` is True."""
        B, C, H, W = images.shape
        padded = F.pad(images, [self.padding] * 4)
        across, down = (torch.arange(size, device=images.device) for size in (W, H))
        rows = corners[:, :1] + down  # (B, H)
        columns = corners[:, 1:] + torch.where(flips[:, None], W - 1 - across, across)  # (B, W)
        pixels = (rows[:, :, None] * padded.shape[-1] + columns[:, None]).view(B, 1, H * W)
        return padded.flatten(2).gather(2, pixels.expand(B, C, H * W)).view(B, C, H, W)
