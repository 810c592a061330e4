"""Exact Gaussian-process regression: the reference for the ensemble's posterior."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from degp.priors.kernel import Kernel, Prior, as_prior
from degp.roots import cholesky

__all__ = ["ExactGP", "leave_one_out"]


@dataclass(frozen=True)
class ExactGP:
    """f | y of a GP prior after y = f(X) + N(0, σ²).        theory/exact.md (1)–(3)

    m(x) = k(x, X) S⁻¹y,   k(x, x') − k(x, X) S⁻¹k(X, x'),   S = K + σ²I = LLᵀ

    Example:
        >>> exact = ExactGP.fit(NNGP(depth=2), data.inputs, data.targets, noise_variance=0.01)
        >>> exact.mean(data.inputs).shape, exact.variance(data.inputs).shape
        (torch.Size([24, 1]), torch.Size([24]))
    """

    kernel: Kernel
    inputs: Shaped[Tensor, "N ..."]
    targets: Float[Tensor, "N C"]
    root: Float[Tensor, "N N"]

    @classmethod
    def fit(
        cls,
        prior: Prior | Callable[[Tensor, Tensor], Any],
        inputs: Shaped[Tensor, "N ..."],
        targets: Float[Tensor, "N C"],
        *,
        noise_variance: float | Float[Tensor, "N"],
        generator: torch.Generator | None = None,
    ) -> "ExactGP":
        """Costs O(N³) once; outputs are independent and share the kernel and the noise, one number or one per row."""
        if targets.ndim != 2 or len(targets) != len(inputs):
            raise ValueError(
                f"targets must have one row per point and one column per output, ({len(inputs)}, C), but their shape "
                f"is {tuple(targets.shape)}; a single target is targets[:, None]"
            )
        if not bool(targets.isfinite().all()):
            raise ValueError("targets must be finite, but some are NaN or infinite; drop these rows or fill them in")
        least = float(torch.as_tensor(noise_variance).min())
        if not least >= 0:
            raise ValueError(f"noise_variance must not be negative, but it is {least}")
        kernel = as_prior(prior).kernel(generator=generator)
        gram = kernel(inputs, inputs).double().clone()
        gram.diagonal().add_(noise_variance)
        return cls(kernel, inputs, targets.double(), cholesky(gram))

    def log_marginal_likelihood(self) -> Float[Tensor, ""]:
        """log p(y) = −½ [‖L⁻¹y‖² + C log|S| + NC log 2π]."""
        N, C = self.targets.shape
        logdet = 2 * self.root.diagonal().log().sum()
        return -0.5 * (self._whiten(self.targets).square().sum() + C * logdet + N * C * math.log(2 * math.pi))

    def leave_one_out(self) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N 1"]]:
        """Residual and variance of each target given all others, noise included."""
        return leave_one_out(self.root, self.targets)

    def mean(self, points: Shaped[Tensor, "K ..."]) -> Float[Tensor, "K C"]:
        """The posterior mean."""
        return self._whiten(self._cross(points)).mT @ self._whiten(self.targets)

    def variance(self, points: Shaped[Tensor, "K ..."], *, batch_size: int = 256) -> Float[Tensor, "K"]:
        """The noise-free posterior variance per point, the same for every output."""
        pieces = [self._variance(piece) for piece in points.split(batch_size)]
        return torch.cat(pieces)

    def covariance(self, points: Shaped[Tensor, "K ..."]) -> Float[Tensor, "K K"]:
        """The noise-free joint posterior covariance."""
        explained = self._whiten(self._cross(points))
        return self.kernel(points, points).double() - explained.mT @ explained

    def _variance(self, points: Shaped[Tensor, "K ..."]) -> Float[Tensor, "K"]:
        return self.kernel(points, points).double().diagonal() - self._whiten(self._cross(points)).square().sum(0)

    def _cross(self, points: Shaped[Tensor, "K ..."]) -> Float[Tensor, "N K"]:
        return self.kernel(self.inputs, points).double()

    def _whiten(self, values: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """L⁻¹v."""
        return torch.linalg.solve_triangular(self.root, values, upper=False)


def leave_one_out(
    root: Float[Tensor, "N N"], targets: Float[Tensor, "N C"]
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N 1"]]:
    """yₙ − E[yₙ | y₋ₙ] = (S⁻¹y)ₙ / (S⁻¹)ₙₙ and Var[yₙ | y₋ₙ] = 1 / (S⁻¹)ₙₙ, with S = LLᵀ.        theory/exact.md (5)"""
    variance = 1 / torch.cholesky_inverse(root).diagonal()[:, None]
    return torch.cholesky_solve(targets, root) * variance, variance
