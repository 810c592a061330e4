"""What images, generators and overlays must be, said where it does not hold."""

from collections.abc import Sequence

import torch
from jaxtyping import Shaped
from torch import Generator, Tensor

from degp.data.corruptions.filters import SIDE


def check_images(images: Shaped[Tensor, "..."]) -> None:
    """Raises ValueError where images are not bytes of shape (N, 3, 32, 32)."""
    if images.dtype != torch.uint8:
        raise ValueError(
            f"images must be uint8, grey levels from 0 to 255, but they are {images.dtype}; images in [0, 1] become so "
            "by (255 * images).round().to(torch.uint8)"
        )
    if images.ndim != 4 or images.shape[1:] != (3, SIDE, SIDE):
        raise ValueError(
            f"images must have the shape (N, 3, 32, 32), but theirs is {tuple(images.shape)}; channels that come last "
            "are moved by images.permute(0, 3, 1, 2), a single image is images[None]"
        )


def check_generator(generator: Generator, device: torch.device) -> None:
    """Raises ValueError where random numbers would be drawn on another kind of device than the images'."""
    if generator.device.type != device.type:
        raise ValueError(
            f"the generator must be on the device of the images, {device}, but it is on {generator.device}; "
            f"make it by torch.Generator({device.type!r})"
        )


def check_overlays(overlays: Sequence[Shaped[Tensor, "..."]] | None) -> None:
    """Raises ValueError where frost has no overlays, or some that are no pictures larger than an image."""
    if not overlays:
        raise ValueError(
            f"frost must have overlays to lay over the images, but they are {overlays!r}; "
            "pass overlays=frost_overlays(), or leave frost out and say so"
        )
    for i, overlay in enumerate(overlays):
        if overlay.dtype != torch.uint8 or overlay.ndim != 3 or len(overlay) != 3 or min(overlay.shape[1:]) <= SIDE:
            raise ValueError(
                f"an overlay must be uint8 of shape (3, H, W) with sides above {SIDE}, but overlay {i} is "
                f"{overlay.dtype} of shape {tuple(overlay.shape)}; see frost_overlays"
            )
