"""The algebra of `LowRankGaussian` with BoTorch's batch axes: one set of points per batch entry."""

from dataclasses import dataclass

import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from jaxtyping import Float
from linear_operator.operators import DiagLinearOperator, LowRankRootLinearOperator
from torch import Tensor

from degp.gaussian import LowRankGaussian

__all__ = ["BatchedCoefficients", "Joint"]


@dataclass(frozen=True)
class Joint:
    """f = m + Aᵀz + √d·e at the q points of each batch entry: `LowRankGaussian` with leading batch axes."""

    mean: Float[Tensor, "*batch q C"]
    deviations: Float[Tensor, "*batch M q C"]
    diagonal: Float[Tensor, "*batch q C"]

    @classmethod
    def split(cls, gaussian: LowRankGaussian, batch: torch.Size) -> "Joint":
        """The points of a flat batch, divided among its entries."""
        M, N, C = gaussian.shape
        rows = (*batch, N // batch.numel(), C)
        deviations = gaussian.deviations.reshape(M, *rows).movedim(0, -3)
        return cls(gaussian.mean.reshape(rows), deviations, gaussian.diagonal.reshape(rows))

    @property
    def batch(self) -> torch.Size:
        """Shape of the batch."""
        return self.mean.shape[:-2]

    def expand(self, batch: torch.Size) -> "Joint":
        """Broadcast to a larger batch."""
        parts = (self.mean, self.deviations, self.diagonal)
        return Joint(*(part.expand(*batch, *part.shape[len(self.batch) :]) for part in parts))

    def select(self, outputs: list[int]) -> "Joint":
        """A subset of the C outputs."""
        return Joint(self.mean[..., outputs], self.deviations[..., outputs], self.diagonal[..., outputs])

    def plus_noise(self, variance: Float[Tensor, "..."]) -> "Joint":
        """Observations of f with independent noise."""
        return Joint(self.mean, self.deviations, self.diagonal + variance.to(self.mean))

    def updated(self, known: "BatchedCoefficients") -> "Joint":
        """Conditioned on observations elsewhere, per batch entry: m + Aᵀμ and L⁻¹A.   theory/conditioning.md (3)"""
        sets = self.expand(torch.broadcast_shapes(self.batch, known.batch))
        A = sets.deviations.double().flatten(-2)
        rotated = torch.linalg.solve_triangular(known.precision_root, A, upper=False)
        return Joint(sets.at(known.mean), rotated.view_as(sets.deviations).to(self.mean), sets.diagonal)

    def at(self, coefficients: Float[Tensor, "*draws M"]) -> Float[Tensor, "*joint q C"]:
        """m + Aᵀz: the functions with these coefficients, without the white part."""
        A = self.deviations.double().flatten(-2)
        shift = (coefficients.double().unsqueeze(-2) @ A).squeeze(-2)
        return self.mean + shift.unflatten(-1, self.mean.shape[-2:]).to(self.mean)

    def to_gpytorch(self) -> MultivariateNormal:
        """The same distribution in GPyTorch, with the covariance as a root plus a diagonal."""
        root = LowRankRootLinearOperator(self.deviations.flatten(-2).mT.contiguous())
        covariance = root + DiagLinearOperator(self.diagonal.flatten(-2))
        if self.mean.shape[-1] == 1:
            return MultivariateNormal(self.mean.squeeze(-1), covariance)
        return MultitaskMultivariateNormal(self.mean, covariance, interleaved=True)


@dataclass(frozen=True)
class BatchedCoefficients:
    """z ~ N(μ, P⁻¹) with P = LLᵀ, per batch entry: `Coefficients` with leading batch axes."""

    mean: Float[Tensor, "*batch M"]
    precision_root: Float[Tensor, "*batch M M"]

    @classmethod
    def prior(cls, members: int, device: torch.device) -> "BatchedCoefficients":
        """N(0, I), before any observation."""
        eye = torch.eye(members, dtype=torch.float64, device=device)
        return cls(eye.new_zeros(members), eye)

    @property
    def batch(self) -> torch.Size:
        """Shape of the batch."""
        return self.mean.shape[:-1]

    def after(
        self, sets: Joint, targets: Float[Tensor, "*observed q C"], noise: Float[Tensor, "..."]
    ) -> "BatchedCoefficients":
        """Conditioned on noisy observations of all q points.        theory/conditioning.md (2)

        P' = P + A (D + Σ)⁻¹Aᵀ,   μ' = P'⁻¹[Pμ + A (D + Σ)⁻¹(y − m)]

        The batches of coefficients, points, targets and noise broadcast.
        """
        A = sets.deviations.double().flatten(-2)
        s = (sets.diagonal + noise.to(sets.mean)).double().flatten(-2)
        r = (targets.to(sets.mean) - sets.mean).double().flatten(-2)
        _require_regular(s)
        scaled = A / s.unsqueeze(-2)
        P = self.precision_root @ self.precision_root.mT
        L = torch.linalg.cholesky(P + scaled @ A.mT)  # P plus a PSD matrix: positive definite
        mean = torch.cholesky_solve(P @ self.mean.unsqueeze(-1) + scaled @ r.unsqueeze(-1), L).squeeze(-1)
        return BatchedCoefficients(mean, L.expand(*mean.shape, mean.shape[-1]))

    def sample(self, shape: torch.Size, *, generator: torch.Generator | None = None) -> Float[Tensor, "*draws M"]:
        """Draws μ + L⁻ᵀu of shape (*shape, *batch, M)."""
        u = torch.randn(*shape, *self.mean.shape, dtype=torch.float64, device=self.mean.device, generator=generator)
        spread = torch.linalg.solve_triangular(self.precision_root.mT, u.unsqueeze(-1), upper=True)
        return self.mean + spread.squeeze(-1)


def _require_regular(variances: Tensor) -> None:
    if not bool((variances > 0).all()):
        raise ValueError(
            "an observation needs a positive variance λ(x) + noise, but both are 0 where all members agree; pass a "
            "positive noise variance"
        )
