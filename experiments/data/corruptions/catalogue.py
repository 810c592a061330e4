"""The 19 corruptions by name, their parameters at severities 1 to 5, and the function that applies them."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from experiments.data.corruptions.checks import check_generator, check_images, check_overlays
from experiments.data.corruptions.digital import brightness, contrast, pixelate, saturate
from experiments.data.corruptions.elastic import elastic_transform
from experiments.data.corruptions.jpeg import jpeg_compression
from experiments.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from experiments.data.corruptions.spatter import spatter
from experiments.data.corruptions.weather import fog, frost, snow

__all__ = ["CATALOGUE", "CORRUPTIONS", "Corruption", "as_bytes", "corrupt", "find_corruption"]

CHUNK = 250  # images per call: bounds the memory and keeps the tensors of one step in the cache


@dataclass(frozen=True)
class Corruption:
    """A function from images to grey levels, its arguments at severities 1 to 5, and the keywords it needs."""

    apply: Callable[..., Float[Tensor, "N 3 32 32"]]
    severities: tuple[tuple[int | float, ...], ...]
    needs: tuple[str, ...] = ()

    def applied(
        self, images: UInt8[Tensor, "N 3 32 32"], arguments: Sequence[int | float], given: Mapping[str, Any]
    ) -> UInt8[Tensor, "N 3 32 32"]:
        """The images under it, a chunk at a time, with those of the given keywords that it needs."""
        needed = {need: given[need] for need in self.needs}
        return torch.cat([as_bytes(self.apply(chunk, *arguments, **needed)) for chunk in images.split(CHUNK)])


DRAWS = ("generator",)
CATALOGUE = {
    "gaussian_noise": Corruption(gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)), DRAWS),
    "shot_noise": Corruption(shot_noise, ((500,), (250,), (100,), (75,), (50,)), DRAWS),
    "impulse_noise": Corruption(impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)), DRAWS),
    "speckle_noise": Corruption(speckle_noise, ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)), DRAWS),
    "gaussian_blur": Corruption(gaussian_blur, ((0.4,), (0.6,), (0.7,), (0.8,), (1.0,))),
    "glass_blur": Corruption(glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)), DRAWS),
    "defocus_blur": Corruption(defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))),
    "motion_blur": Corruption(motion_blur, ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)), DRAWS),
    "zoom_blur": Corruption(zoom_blur, ((1.06,), (1.11,), (1.16,), (1.21,), (1.26,))),
    "fog": Corruption(fog, ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)), DRAWS),
    "frost": Corruption(frost, ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)), (*DRAWS, "overlays")),
    "snow": Corruption(
        snow,
        (
            (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
            (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
        ),
        DRAWS,
    ),
    "spatter": Corruption(
        spatter,
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, False),
            (0.65, 0.1, 0.8, 0.7, 0.5, False),
            (0.65, 0.3, 1.0, 0.69, 0.5, False),
            (0.65, 0.1, 0.7, 0.69, 0.6, True),
            (0.65, 0.1, 0.5, 0.68, 0.6, True),
        ),
        DRAWS,
    ),
    "contrast": Corruption(contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
    "brightness": Corruption(brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
    "saturate": Corruption(saturate, ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))),
    "jpeg_compression": Corruption(jpeg_compression, ((80,), (65,), (58,), (50,), (40,))),
    "pixelate": Corruption(pixelate, ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
    "elastic_transform": Corruption(
        elastic_transform,
        ((0.0, 0.0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
        DRAWS,
    ),
}

CORRUPTIONS = tuple(CATALOGUE)


def corrupt(
    images: Shaped[Tensor, "..."],
    name: str,
    severity: int,
    *,
    generator: Generator,
    overlays: Sequence[Shaped[Tensor, "..."]] | None = None,
) -> UInt8[Tensor, "N 3 32 32"]:
    """The images under a corruption of CIFAR-10-C, with independent noise per image, on the device of the images.

    Args:
        images: uint8 of shape (N, 3, 32, 32).
        name: one of `CORRUPTIONS`.
        severity: from 1, mild, to 5.
        generator: on the device of the images; equal seeds give equal images.
        overlays: for frost only, see `frost_overlays`.

    Example::

        generator = torch.Generator().manual_seed(0)
        noisy = corrupt(images, "gaussian_noise", 3, generator=generator)
    """
    check_images(images)
    check_generator(generator, images.device)
    corruption, arguments = find_corruption(name, severity)
    if "overlays" in corruption.needs:
        check_overlays(overlays)
    return corruption.applied(images, arguments, {"generator": generator, "overlays": overlays})


def find_corruption(
    name: str, severity: int, catalogue: Mapping[str, Corruption] = CATALOGUE
) -> tuple[Corruption, tuple[int | float, ...]]:
    """A corruption by name, and its arguments at a severity."""
    if name not in catalogue:
        near = difflib.get_close_matches(name, catalogue, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else "choose one of these"
        raise ValueError(f"a corruption must be one of {', '.join(catalogue)}, but it is {name!r}; {hint}")
    if severity not in range(1, 6):
        raise ValueError(f"a severity must be 1, 2, 3, 4 or 5, but it is {severity!r}; 1 is the mildest")
    return catalogue[name], catalogue[name].severities[severity - 1]


def as_bytes(levels: Float[Tensor, "*axes"]) -> UInt8[Tensor, "*axes"]:
    """Grey levels as bytes, clamped to 0 … 255 and truncated, as in the benchmark."""
    return levels.clamp(0, 255).to(torch.uint8)
