"""White stars with rays of random lengths, and the inverse: white around one star in which the image is seen."""

import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.filters import SIDE

__all__ = ["inverse_sparkles", "shine", "sparkles"]

STARS = 5
FEWEST_RAYS, MOST_RAYS = 50, 199
VARIATION = 0.25  # standard deviation of the length of a ray, relative to the mean


def sparkles(images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator) -> Float[Tensor, "N 3 32 32"]:
    """255 − (255 − x) Πᵢ (1 − fᵢ) for five stars f, anywhere in the image, of radius 0.32·level pixels.

    Rays are at least 1 pixel long.
    """
    darkness = 255 - images.double()
    for _ in range(STARS):
        centres = SIDE * _uniform((len(images), 2), images, generator)
        rays, lengths = _rays(images, 0.01 * SIDE * level, generator)
        darkness *= 1 - shine(centres, rays, lengths.clamp(min=1), power=1.0)[:, None]
    return 255 - darkness


def inverse_sparkles(
    images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """255 − (255 − x) f for one star f of radius 8 with the power 0.13·level, in the middle half of the image."""
    centres = SIDE * (0.25 + 0.5 * _uniform((len(images), 2), images, generator))
    rays, lengths = _rays(images, SIDE / 4, generator)
    return 255 - (255 - images.double()) * shine(centres, rays, lengths, power=0.13 * level)[:, None]


def shine(
    centres: Float[Tensor, "N 2"], rays: Int[Tensor, "N"], lengths: Float[Tensor, "N R"], *, power: float
) -> Float[Tensor, "N 32 32"]:
    """f(p) = min(1, (1 − (u − ½)²) (l² / (d² + 10⁻⁴))^power), the opacity of a star at the pixels p.

    d is the distance of p from the centre. Seen from there, p is a fraction u of the angle between two rays beyond ray
    i, and l = (1 − u) lᵢ + u lᵢ₊₁. Only the first `rays` of the lengths count.
    """
    pixels = torch.arange(SIDE, device=centres.device)
    down, right = pixels[:, None] - centres[:, 0, None, None], pixels - centres[:, 1, None, None]
    turns = torch.atan2(right, down) / (2 * torch.pi) + 0.5
    place = (turns * rays[:, None, None]).flatten(1)  # in units of the angle between two rays
    u = place.frac()
    first, second = (lengths.gather(1, (place.long() + step) % rays[:, None]) for step in (0, 1))
    length = (first + u * (second - first)).view_as(down + right)
    brightness = (length.square() / (down.square() + right.square() + 1e-4)) ** power
    return ((1 - (u - 0.5).square()).view_as(brightness) * brightness).clamp(max=1)


def _rays(
    images: UInt8[Tensor, "N 3 32 32"], radius: float, generator: Generator
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N R"]]:
    """The number of rays per image, and their lengths r + ¼ r ε with ε ~ N(0, 1)."""
    N, device = len(images), images.device
    rays = torch.randint(FEWEST_RAYS, MOST_RAYS + 1, (N,), generator=generator, device=device)
    noise = torch.randn((N, MOST_RAYS), generator=generator, device=device, dtype=torch.double)
    return rays, radius * (1 + VARIATION * noise)


def _uniform(shape: tuple[int, ...], images: UInt8[Tensor, "N 3 32 32"], generator: Generator) -> Float[Tensor, "..."]:
    return torch.rand(shape, generator=generator, device=images.device, dtype=torch.double)
