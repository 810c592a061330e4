"""The 10 corruptions by name, their published levels at severities 1 to 5, and the function that applies them."""

from jaxtyping import Shaped, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.catalogue import Corruption, find_corruption
from experiments.data.corruptions.checks import check_generator, check_images
from experiments.data.corruptions_bar.distortion import pinch_and_twirl, ripple
from experiments.data.corruptions_bar.occlusion import checkerboard_cutout, lines
from experiments.data.corruptions_bar.sparkles import inverse_sparkles, sparkles
from experiments.data.corruptions_bar.spectral import blue_noise_sample, brownish_noise
from experiments.data.corruptions_bar.splines import circular_motion_blur, transverse_chromatic_aberration

__all__ = ["CATALOGUE_BAR", "CORRUPTIONS_BAR", "corrupt_bar"]

DRAWS = ("generator",)
# Levels are on the published scale from 0 to 10; each function converts its level to the units of its formula.
CATALOGUE_BAR = {
    "blue_noise_sample": Corruption(blue_noise_sample, ((0.7,), (1.4,), (2.1,), (3.5,), (4.2,)), DRAWS),
    "brownish_noise": Corruption(brownish_noise, ((2.5,), (4.0,), (5.5,), (6.5,), (7.0,)), DRAWS),
    "checkerboard_cutout": Corruption(checkerboard_cutout, ((1.0,), (2.0,), (3.0,), (4.0,), (5.0,)), DRAWS),
    "circular_motion_blur": Corruption(circular_motion_blur, ((2.8,), (3.6,), (4.4,), (5.2,), (6.0,))),
    "inverse_sparkles": Corruption(inverse_sparkles, ((1.0,), (1.5,), (2.5,), (4.5,), (5.0,)), DRAWS),
    "lines": Corruption(lines, ((0.5,), (1.0,), (1.5,), (2.0,), (2.5,)), DRAWS),
    "pinch_and_twirl_v2": Corruption(pinch_and_twirl, ((5.5,), (6.0,), (6.5,), (8.5,), (10.0,)), DRAWS),
    "ripple": Corruption(ripple, ((5.5,), (6.0,), (6.5,), (7.5,), (8.0,)), DRAWS),
    "sparkles": Corruption(sparkles, ((0.7,), (3.5,), (5.6,), (6.3,), (7.0,)), DRAWS),
    "transverse_chromatic_abberation": Corruption(  # spelt as published
        transverse_chromatic_aberration, ((1.0,), (2.0,), (5.0,), (9.0,), (10.0,)), DRAWS
    ),
}

CORRUPTIONS_BAR = tuple(CATALOGUE_BAR)


def corrupt_bar(
    images: Shaped[Tensor, "..."], name: str, severity: int, *, generator: Generator
) -> UInt8[Tensor, "N 3 32 32"]:
    """The images under a corruption of CIFAR-10-C̄, with independent draws per image, on the device of the images.

    Args:
        images: uint8 of shape (N, 3, 32, 32).
        name: one of `CORRUPTIONS_BAR`.
        severity: from 1, mild, to 5.
        generator: on the device of the images; equal seeds give equal images.

    Example::

        generator = torch.Generator().manual_seed(0)
        rippled = corrupt_bar(images, "ripple", 3, generator=generator)
    """
    check_images(images)
    check_generator(generator, images.device)
    corruption, arguments = find_corruption(name, severity, CATALOGUE_BAR)
    return corruption.applied(images, arguments, {"generator": generator})
