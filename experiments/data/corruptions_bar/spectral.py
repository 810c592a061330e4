"""Noise with a given spectrum: pixels sampled where blue noise is large, and additive brownish noise."""

import torch
from jaxtyping import Float, UInt8
from torch import Generator, Tensor

from experiments.data.corruptions.filters import SIDE

__all__ = ["blue_noise_sample", "brownish_noise", "spectral_noise", "squared_frequencies"]


def blue_noise_sample(
    images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """x where ε > 0.3·level − 2.5, and black elsewhere, with noise ε of amplitude A(k) = |k|."""
    amplitudes = squared_frequencies(images.device).sqrt()
    noise = spectral_noise(amplitudes, len(images), generator=generator)
    return images * (noise > 0.3 * level - 2.5)[:, None].double()


def brownish_noise(
    images: UInt8[Tensor, "N 3 32 32"], level: float, *, generator: Generator
) -> Float[Tensor, "N 3 32 32"]:
    """x + 6.4·level·ε, with noise ε of amplitude A(k) = 1 / (|k|² + 1), independent per channel."""
    amplitudes = 1 / (squared_frequencies(images.device) + 1)
    noise = spectral_noise(amplitudes, 3 * len(images), generator=generator)
    return images + 6.4 * level * noise.view(images.shape)


def squared_frequencies(device: torch.device) -> Float[Tensor, "32 32"]:
    """|k|² for k in {−16, …, 15}²."""
    k = _frequencies(device)
    return k.square() + k[:, None].square()


def _frequencies(device: torch.device) -> Float[Tensor, "32"]:
    return torch.arange(-SIDE // 2, SIDE // 2, device=device, dtype=torch.double)


def spectral_noise(
    amplitudes: Float[Tensor, "32 32"], count: int, *, generator: Generator
) -> Float[Tensor, "{count} 32 32"]:
    """ε(p) ∝ Σₖ A(k) cos(2π k·p / 32 + φₖ), scaled to a standard deviation of 1 over each image.

    The sum is over k in {−16, …, 15}². The phases are uniform, and equal at k and −k − (1, 1), as in the benchmark.
    """
    device = amplitudes.device
    draws = torch.rand((count, SIDE, SIDE // 2), generator=generator, device=device, dtype=torch.double)
    phases = 2 * torch.pi * torch.cat([draws, draws.flip(1, 2)], dim=2)
    pixels = torch.arange(SIDE, device=device)[:, None]
    waves = torch.exp(2j * torch.pi / SIDE * (pixels * _frequencies(device)))  # (p, k), along rows and columns
    noise = (waves @ (amplitudes * torch.exp(1j * phases)) @ waves.mT).real
    deviations = noise - noise.mean((1, 2), keepdim=True)
    return noise / deviations.square().mean((1, 2), keepdim=True).sqrt()
