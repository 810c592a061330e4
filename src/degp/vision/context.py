"""Context points for images: images without a class, made from a batch on its device, where the prior should rule.

    method = degp(likelihood, prior, measurement=context_images(32))

None of them is one of the corruptions by which image classifiers are judged. Every object takes the batch as the
networks see it (normalised) and draws `count` images; no value is read on the host, so that a CUDA graph can hold it.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from degp.measurement import Combined

__all__ = ["ChannelMix", "PatchShuffle", "SmoothNoise", "context_images"]


def context_images(count: int = 32) -> Combined:
    """`count` images, a third each of `PatchShuffle`, `SmoothNoise` and `ChannelMix`."""
    if count < 3:
        raise ValueError(f"there must be an image of each of three kinds, but count is {count}")
    third = count // 3
    return Combined((PatchShuffle(count - 2 * third), SmoothNoise(third), ChannelMix(third)))


@dataclass(frozen=True)
class PatchShuffle:
    """Images of the batch cut into `grid` × `grid` patches, in random order: textures without the object.

    Example:
        >>> images = torch.rand(16, 3, 32, 32)
        >>> shuffled = PatchShuffle(8, grid=4)(images, generator=torch.Generator().manual_seed(0))
        >>> shuffled.shape, bool(torch.isin(shuffled, images).all())  # the same pixels, elsewhere
        (torch.Size([8, 3, 32, 32]), True)
    """

    count: int
    grid: int = 4

    def __post_init__(self) -> None:
        _require_count(self.count)
        if self.grid < 2:
            raise ValueError(f"a grid of patches has at least 2 rows and columns, but grid is {self.grid}")

    def __call__(
        self, inputs: Float[Tensor, "B C H W"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "K C H W"]:
        G, (C, H, W) = self.grid, inputs.shape[1:]
        if H % G or W % G:
            raise ValueError(
                f"patches must tile the image, but {H} × {W} pixels have no {G} × {G} equal patches; "
                "pass another grid, or other context images"
            )
        images = inputs[_rows(self.count, inputs, generator)].reshape(-1, C, G, H // G, G, W // G)
        patches = images.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (K, G², C, h, w)
        order = torch.rand(self.count, G * G, generator=generator, device=inputs.device).argsort(1)
        shuffled = patches.gather(1, order.view(-1, G * G, 1, 1, 1).expand_as(patches))
        return _as(inputs, shuffled.unflatten(1, (G, G)).permute(0, 3, 1, 4, 2, 5).reshape(-1, C, H, W))


@dataclass(frozen=True)
class SmoothNoise:
    """Coloured noise from coarse to fine: Σ_g w_g upsampled N(0, 1) on g × g cells, per channel.

    With the batch's mean and standard deviation of each channel, within its range; the weights w are random, per image.

    Example:
        >>> images = torch.rand(16, 3, 32, 32)
        >>> noise = SmoothNoise(8)(images, generator=torch.Generator().manual_seed(0))
        >>> noise.shape, bool(noise.max() <= images.max())
        (torch.Size([8, 3, 32, 32]), True)
    """

    count: int
    cells: tuple[int, ...] = (2, 4, 8)

    def __post_init__(self) -> None:
        _require_count(self.count)

    def __call__(
        self, inputs: Float[Tensor, "B C H W"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "K C H W"]:
        C, H, W = inputs.shape[1:]
        draw: dict[str, Any] = {"generator": generator, "device": inputs.device, "dtype": inputs.dtype}
        weights = F.normalize(torch.rand(self.count, len(self.cells), **draw), dim=1)
        noise = torch.zeros((), device=inputs.device, dtype=inputs.dtype)
        for cells, weight in zip(self.cells, weights.T, strict=True):
            coarse = torch.randn(self.count, C, cells, cells, **draw)
            noise = noise + weight.view(-1, 1, 1, 1) * F.interpolate(coarse, (H, W), mode="bilinear")
        spread, centre = torch.std_mean(inputs, (0, 2, 3), keepdim=True)
        low, high = inputs.amin((0, 2, 3), keepdim=True), inputs.amax((0, 2, 3), keepdim=True)
        return _as(inputs, (centre + 1.5 * spread * noise).clamp(low, high))


@dataclass(frozen=True)
class ChannelMix:
    """u R x + (1 − u) x': an image with its channels mixed by random unit vectors R, blended with another image.

    u is uniform between ½ and 1. Hues change, and no scaling of brightness, contrast or saturation gives the same.

    Example:
        >>> images = torch.rand(16, 3, 32, 32)
        >>> ChannelMix(8)(images, generator=torch.Generator().manual_seed(0)).shape
        torch.Size([8, 3, 32, 32])
    """

    count: int

    def __post_init__(self) -> None:
        _require_count(self.count)

    def __call__(
        self, inputs: Float[Tensor, "B C H W"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "K C H W"]:
        C = inputs.shape[1]
        draw: dict[str, Any] = {"generator": generator, "device": inputs.device, "dtype": inputs.dtype}
        first, second = (inputs[_rows(self.count, inputs, generator)] for _ in range(2))
        rotation = F.normalize(torch.randn(self.count, C, C, **draw), dim=2)
        share = 0.5 + 0.5 * torch.rand(self.count, 1, 1, 1, **draw)
        mixed = (rotation[..., None, None] * first[:, None]).sum(2)  # not a product, which autocast would round
        return _as(inputs, share * mixed + (1 - share) * second)


def _rows(count: int, inputs: Tensor, generator: torch.Generator | None) -> Int64[Tensor, "K"]:
    return torch.randint(len(inputs), (count,), generator=generator, device=inputs.device)


def _as(inputs: Tensor, images: Tensor) -> Tensor:
    """In the batch's precision and memory format, so that both join without a conversion."""
    last = inputs.is_contiguous(memory_format=torch.channels_last) and not inputs.is_contiguous()
    return images.to(inputs.dtype).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _require_count(count: int) -> None:
    if count < 1:
        raise ValueError(f"count is the number of context images and must be at least 1, but it is {count}")
