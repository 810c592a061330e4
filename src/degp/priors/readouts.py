"""Output layers given data: Bayesian linear regression on the features of a hidden layer."""

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["conditioned_readouts"]


def conditioned_readouts(
    prior: Float[Tensor, "F K"],
    features: Float[Tensor, "N F"],
    observed: Float[Tensor, "N K"],
    variance: Float[Tensor, "F"],
    noise: Float[Tensor, ""],
    weights: Float[Tensor, "N"] | None = None,
) -> Float[Tensor, "F K"]:
    """Draws of output weights from their posterior, from draws of their prior.        theory/stationary.md (3)

        a + SΦᵀ (ΦSΦᵀ + σ²W⁻¹)⁻¹ (y + η − Φa),        a ~ N(0, S),  η ~ N(0, σ²W⁻¹)

    Each column is one draw. With Z = W^½ΦS^½, the smaller of ZZᵀ + σ²I and ZᵀZ + σ²I is solved.

    Args:
        prior: a.
        features: Φ, of the data.
        observed: y + η, targets with a draw of their noise.
        variance: the diagonal of S.
        noise: σ².
        weights: the diagonal of W: a point of weight w has the noise variance σ²/w. None for ones.

    Example:
        >>> features, observed = torch.eye(2), torch.tensor([[1.0], [2.0]])
        >>> conditioned_readouts(torch.zeros(2, 1), features, observed, torch.ones(2), torch.tensor(1.0))
        tensor([[0.5000],
                [1.0000]])
    """
    root = torch.ones_like(features[:, :1]) if weights is None else weights.sqrt()[:, None]
    Z, r = root * features * variance.sqrt(), root * (observed - features @ prior)
    N, F = Z.shape
    diagonal = noise * torch.eye(min(N, F), dtype=Z.dtype, device=Z.device)
    # by Cholesky: torch's LU of a batch under vmap fails with two threads on some CPUs
    if N <= F:
        solved = Z.mT @ torch.cholesky_solve(r, torch.linalg.cholesky(Z @ Z.mT + diagonal))
    else:
        solved = torch.cholesky_solve(Z.mT @ r, torch.linalg.cholesky(Z.mT @ Z + diagonal))
    return prior + variance.sqrt()[:, None] * solved
