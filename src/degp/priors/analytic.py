"""The analytic NN-GP: the kernel of infinitely wide fully connected networks."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import torch
from jaxtyping import Float
from torch import Tensor

from degp.points import Inputs
from degp.priors.duals import Dual, relu
from degp.priors.kernel import Kernel

__all__ = ["NNGP"]


def _affine(values: Tensor, w: float, b: float) -> Tensor:
    """w · values + b, in one pass and in place."""
    return torch.add(values.new_full((), b), values, alpha=w, out=values)


@dataclass(frozen=True)
class NNGP:
    """k of a fully connected network with `depth` hidden layers of infinite width.        theory/prior.md (5)

    k⁰(x, x') = w₀ xᵀx'/D + b₀,   kˡ⁺¹ = w_{l+1} E[φ(u) φ(v)] + b_{l+1},   (u, v) ~ N(0, kˡ)

    Args:
        depth: hidden layers; 0 is Bayesian linear regression.
        weight_variances: w, the variance of a layer's weights times its fan-in: one number, or one per layer
            (depth + 1, the read-out last).
        bias_variances: b, likewise. With 0.01 and low-dimensional inputs the prior is nearly a function of the input's
            direction through the origin (times its length), and error bars are too narrow; the paper's image networks
            pass 0.01.
        dual: `relu`, `erf`, or any function that gives E[φ(u) φ(v)] from the three entries of kˡ.

    Example:
        >>> x = torch.linspace(-1, 1, 5)[:, None]
        >>> NNGP(depth=2).kernel()(x, x).shape
        torch.Size([5, 5])
    """

    depth: int
    weight_variances: float | Sequence[float] = 2.0
    bias_variances: float | Sequence[float] = 1.0
    dual: Dual = relu

    def __post_init__(self) -> None:
        if not isinstance(self.depth, Integral) or self.depth < 0:
            raise ValueError(f"depth counts hidden layers and must be 0, 1, 2, …, but it is {self.depth}")
        for name in ("weight_variances", "bias_variances"):
            values = self._per_layer(getattr(self, name), name)
            if not all(value >= 0 for value in values):
                raise ValueError(f"{name} must not be negative, but the minimum is {min(values)}")

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """The kernel itself; nothing is drawn."""
        return self

    @torch.no_grad()
    def __call__(self, left: Inputs, right: Inputs) -> Float[Tensor, "N K"]:
        """k(x, x') for all pairs, in float64."""
        if not isinstance(left, Tensor):
            raise TypeError(
                f"NNGP is a kernel of numbers and needs a tensor (N, …), but the inputs are a {type(left).__name__}; "
                f"pass KernelPrior(lambda a, b: nngp(features(a), features(b))), with features that give a tensor"
            )
        x, y = left.double().flatten(1), right.double().flatten(1)
        if not x.shape[1] == y.shape[1] > 0:
            raise ValueError(
                f"both sets of points must have the same features, at least one, but they have {x.shape[1]} and "
                f"{y.shape[1]}"
            )
        (w, *weights), (b, *biases) = (
            self._per_layer(self.weight_variances, "weight_variances"),
            self._per_layer(self.bias_variances, "bias_variances"),
        )
        scale = w / x.shape[1]
        k = torch.addmm(x.new_full((), b), scale * x, y.mT)
        variances = [scale * z.square().sum(1) + b for z in (() if right is left else (x, y))]  # k(x, x), k(x', x')
        for w, b in zip(weights, biases, strict=True):
            left_variance, right_variance = variances or [k.diagonal()] * 2
            k = _affine(self.dual(k, left_variance[:, None], right_variance[None, :]), w, b)
            variances = [_affine(self.dual(v, v, v), w, b) for v in variances]
        return k

    def _per_layer(self, values: float | Sequence[float], name: str) -> Sequence[float]:
        if isinstance(values, (int, float, Real)):
            return [float(values)] * (self.depth + 1)
        if len(values) != self.depth + 1:
            raise ValueError(
                f"{name} must be one number or depth + 1 = {self.depth + 1} of them (hidden layers and read-out), "
                f"but there are {len(values)}; pass one per layer"
            )
        return [float(value) for value in values]
