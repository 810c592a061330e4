"""Where an image's channels are in memory."""

import torch
from jaxtyping import Float
from torch import Tensor


def channels_last(x: Tensor) -> Tensor:
    """The layout that tensor cores want; elsewhere as it is."""
    if x.device.type == "cuda" and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def channels_second(x: Float[Tensor, "N H W C"]) -> Float[Tensor, "N C H W"]:
    """As PyTorch names them, while in memory they stay last."""
    return x.permute(0, 3, 1, 2)


def by_pixels(x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N H W C"]:
    """As they are in memory; no copy where they are last already."""
    return x.permute(0, 2, 3, 1).contiguous()
