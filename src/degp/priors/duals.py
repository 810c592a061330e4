"""Duals: E[φ(u) φ(v)] of an activation φ under jointly Gaussian u and v, of which the NN-GP's kernel is made."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Dual", "differentiable_relu", "erf", "relu"]

Dual = Callable[[Tensor, Tensor, Tensor], Tensor]
TURN = 2 * math.pi


def relu(
    covariance: Float[Tensor, "..."], left: Float[Tensor, "..."], right: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """E[max(u, 0) max(v, 0)] for (u, v) ~ N(0, [[left, covariance], [·, right]]).        theory/prior.md (6)

    = √(left·right) (sin θ + (π − θ) cos θ) / 2π with cos θ the correlation: the arc-cosine kernel of order one.
    The variances broadcast to the covariance.

    Example:
        >>> one = torch.tensor(1.0)
        >>> relu(one, one, one)  # E max(u, 0)² of a standard normal u
        tensor(0.5000)
    """
    # the floor: a point without variance has covariance 0, and 0 / floor is a correlation of 0
    floor = torch.finfo(covariance.dtype).tiny ** 0.5
    std = left.sqrt().clamp_min(floor) * right.sqrt().clamp_min(floor)
    # few passes over the N × K matrix, in place where possible: they are the kernel's cost
    cosine = (covariance / std).clamp_(-1.0, 1.0)  # |cos θ| ≤ 1 up to rounding
    sine = torch.addcmul(cosine.new_full((), TURN**-2), cosine, cosine, value=-(TURN**-2)).sqrt_()  # √(1 − cos²θ) / 2π
    supplement = cosine.neg().arccos_()  # π − θ
    return sine.addcmul_(supplement, cosine, value=1 / TURN).mul_(std)


def erf(
    covariance: Float[Tensor, "..."], left: Float[Tensor, "..."], right: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """E[erf(u) erf(v)] = (2/π) arcsin(2 covariance / √((1 + 2 left)(1 + 2 right))).        theory/prior.md (7)

    Example:
        >>> one = torch.tensor(1.0)
        >>> round(erf(one, one, one).item(), 3)
        0.465
    """
    correlation = 2 * covariance / ((1 + 2 * left).sqrt() * (1 + 2 * right).sqrt())
    return 2 / math.pi * correlation.clamp(-1.0, 1.0).arcsin()


def differentiable_relu(
    covariance: Float[Tensor, "..."], left: Float[Tensor, "..."], right: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """`relu` of variances (N, 1) and (1, K), not in place; E max(u, 0)² = v / 2 exactly."""
    return covariance / 2 if covariance is left else _ReLU.apply(covariance, left, right)


class _ReLU(torch.autograd.Function):
    """`relu` with the gradient in closed form: ∂/∂k = (π − θ) / 2π and ∂/∂v = √(w/v) sin θ / 4π, cos θ = k / √(vw)."""

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, left: Tensor, right: Tensor) -> Tensor:
        std = left.sqrt() * right.sqrt()
        cosine = (covariance / std).clamp_(-1 + 1e-10, 1 - 1e-10)
        by_covariance = cosine.arccos().neg_().add_(math.pi).div_(2 * math.pi)
        by_std = cosine.square().neg_().add_(1).sqrt_().div_(2 * math.pi).mul_(std)
        ctx.save_for_backward(by_covariance, by_std, left, right)
        return torch.addcmul(by_std, cosine.mul_(std), by_covariance)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by_covariance, by_std, left, right = ctx.saved_tensors
        (gradient,) = gradients
        half = 0.5 * gradient * by_std
        return gradient * by_covariance, half.sum(1, keepdim=True) / left, half.sum(0, keepdim=True) / right
