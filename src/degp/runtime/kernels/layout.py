"""Memory layouts of images: where the channels are."""

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["by_pixels", "channels_last", "channels_second"]


def channels_last(x: Tensor) -> Tensor:
    """Channels-last memory format on a GPU, as tensor cores need it; unchanged elsewhere."""
    if x.device.type == "cuda" and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def channels_second(x: Float[Tensor, "N H W C"]) -> Float[Tensor, "N C H W"]:
    """PyTorch's order of axes; in memory the channels stay last."""
    return x.permute(0, 3, 1, 2)


def by_pixels(x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N H W C"]:
    """The channels as last axis, contiguous; no copy where they are last in memory already."""
    return x.permute(0, 2, 3, 1).contiguous()
