"""The analytic NN-GP: the kernel of infinitely wide fully connected networks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from degp.priors.kernel import Kernel

Dual = Callable[[Tensor, Tensor, Tensor], Tensor]


def relu(
    covariance: Float[Tensor, "N K"], left: Float[Tensor, "N 1"], right: Float[Tensor, "1 K"]
) -> Float[Tensor, "N K"]:
    """E[max(u, 0) max(v, 0)] for (u, v) ~ N(0, [[left, covariance], [·, right]]).        theory/prior.md (6)

    = √(left·right) (sin θ + (π − θ) cos θ) / 2π with cos θ the correlation: the arc-cosine kernel of order one.
    """
    scale = (left * right).sqrt()
    # |cos θ| ≤ 1 up to rounding; a point without variance has correlation 0 with all others and scale 0
    cosine = torch.where(scale > 0, covariance / scale, 0.0).clamp(-1.0, 1.0)
    return scale * ((1 - cosine.square()).sqrt() + (math.pi - cosine.arccos()) * cosine) / (2 * math.pi)


def erf(
    covariance: Float[Tensor, "N K"], left: Float[Tensor, "N 1"], right: Float[Tensor, "1 K"]
) -> Float[Tensor, "N K"]:
    """E[erf(u) erf(v)] = (2/π) arcsin(2 covariance / √((1 + 2 left)(1 + 2 right))).        theory/prior.md (7)"""
    return 2 / math.pi * (2 * covariance / ((1 + 2 * left) * (1 + 2 * right)).sqrt()).arcsin()


@dataclass(frozen=True)
class NNGP:
    """k of a fully connected network with `depth` hidden layers of infinite width.        theory/prior.md (5)

    k⁰(x, x') = w₀ xᵀx'/D + b₀,   kˡ⁺¹ = w_{l+1} E[φ(u) φ(v)] + b_{l+1},   (u, v) ~ N(0, kˡ)

    Args:
        depth: hidden layers; 0 is Bayesian linear regression.
        weight_variances: w, the variance of a layer's weights times its fan-in: one number, or depth + 1 of them.
        bias_variances: b, likewise; the last is the read-out's.
        dual: `relu`, `erf`, or any function that gives E[φ(u) φ(v)] from the three entries of kˡ.
    """

    depth: int
    weight_variances: float | Sequence[float] = 2.0
    bias_variances: float | Sequence[float] = 0.01
    dual: Dual = relu

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"depth counts hidden layers and must not be negative, but it is {self.depth}")
        for name in ("weight_variances", "bias_variances"):
            values = self._a_layer(getattr(self, name), name)
            if min(values) < 0:
                raise ValueError(f"{name} must not be negative, but the least is {min(values)}")

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """The kernel itself: there is nothing to draw."""
        return self

    @torch.no_grad()
    def __call__(self, left: Shaped[Tensor, "N ..."], right: Shaped[Tensor, "K ..."]) -> Float[Tensor, "N K"]:
        """k(x, x') for all pairs, in float64."""
        x, y = left.double().flatten(1), right.double().flatten(1)
        (w, *weights), (b, *biases) = (
            self._a_layer(self.weight_variances, "weight_variances"),
            self._a_layer(self.bias_variances, "bias_variances"),
        )
        scale = w / x.shape[1]
        k = scale * x @ y.mT + b
        k_left, k_right = (scale * z.square().sum(1) + b for z in (x, y))  # k(x, x), k(x', x')
        for w, b in zip(weights, biases, strict=True):
            k = w * self.dual(k, k_left[:, None], k_right[None, :]) + b
            k_left, k_right = (w * self.dual(v, v, v) + b for v in (k_left, k_right))
        return k

    def _a_layer(self, values: float | Sequence[float], name: str) -> Sequence[float]:
        if not isinstance(values, Sequence):
            return [values] * (self.depth + 1)
        if len(values) != self.depth + 1:
            raise ValueError(
                f"{name} must be one number or depth + 1 = {self.depth + 1} of them (hidden layers and read-out), "
                f"but there are {len(values)}"
            )
        return values
