"""Validation of images, generators and overlays."""

from collections.abc import Sequence

import torch
from jaxtyping import Shaped
from torch import Generator, Tensor

from experiments.data.corruptions.filters import SIDE

__all__ = ["check_generator", "check_images", "check_overlays"]


def check_images(images: Shaped[Tensor, "..."]) -> None:
    """Raises ValueError unless images are bytes of shape (N, 3, 32, 32)."""
    if images.dtype != torch.uint8:
        raise ValueError(
            f"images must be uint8, grey levels from 0 to 255, but they are {images.dtype}; convert images in [0, 1] "
            "by (255 * images).round().to(torch.uint8)"
        )
    if images.ndim != 4 or images.shape[1:] != (3, SIDE, SIDE):
        raise ValueError(
            f"images must have the shape (N, 3, 32, 32), but have {tuple(images.shape)}; move the last axis of "
            "channels by images.permute(0, 3, 1, 2), and pass a single image as images[None]"
        )


def check_generator(generator: Generator, device: torch.device) -> None:
    """Raises ValueError unless the generator is on the type of device of the images."""
    if generator.device.type != device.type:
        raise ValueError(
            f"the generator must be on the device of the images, {device}, but it is on {generator.device}; "
            f"use torch.Generator({device.type!r})"
        )


def check_overlays(overlays: Sequence[Shaped[Tensor, "..."]] | None) -> None:
    """Raises ValueError unless frost has overlays that are larger than an image."""
    if not overlays:
        raise ValueError(
            f"frost must have overlays, but they are {overlays!r}; "
            "pass overlays=frost_overlays(), or omit frost and report that"
        )
    for i, overlay in enumerate(overlays):
        if overlay.dtype != torch.uint8 or overlay.ndim != 3 or len(overlay) != 3 or min(overlay.shape[1:]) <= SIDE:
            raise ValueError(
                f"an overlay must be uint8 of shape (3, H, W) with sides above {SIDE}, but overlay {i} is "
                f"{overlay.dtype} of shape {tuple(overlay.shape)}; see frost_overlays"
            )
