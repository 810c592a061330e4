"""Random Fourier features and the Gaussian posterior of a linear layer on them, as SNGP has it (Liu et al., 2020)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["RandomFeatures", "precision_root", "variances"]


class RandomFeatures(nn.Module):
    """φ(x) = s cos(xΩ + b) with b uniform on a circle.

    Args:
        frequencies: Ω.
        generator: of b, on the device of Ω.
        scale: s; √(2/K) gives a kernel of variance 1.
    """

    frequencies: Tensor
    phases: Tensor

    def __init__(
        self, frequencies: Float[Tensor, "D K"], generator: torch.Generator | None = None, scale: float = 1.0
    ) -> None:
        super().__init__()
        like = {"device": frequencies.device, "dtype": frequencies.dtype, "generator": generator}
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("phases", 2 * math.pi * torch.rand(frequencies.shape[1], **like))
        self.scale = scale

    def forward(self, points: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        with torch.autocast(points.device.type, enabled=False):  # half precision would round angles to two digits
            return self.scale * torch.cos(points.to(self.phases) @ self.frequencies + self.phases)


def precision_root(
    features: Float[Tensor, "N K"], ridge: float, weights: Float[Tensor, "N"] | None = None
) -> Float[Tensor, "K K"]:
    """L with LLᵀ = rI + Σₙ wₙ φₙφₙᵀ, in float64; the weights are 1 by default."""
    weighted = features if weights is None else weights[:, None] * features
    precision = weighted.mT.double() @ features.double()
    precision.diagonal().add_(ridge)
    return torch.linalg.cholesky(precision)


def variances(root: Float[Tensor, "K K"], features: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    """φᵀ (LLᵀ)⁻¹ φ of each row: the variance of a logit."""
    return torch.linalg.solve_triangular(root, features.mT.double(), upper=False).square().sum(0).to(features)
