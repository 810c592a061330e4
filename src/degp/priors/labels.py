"""Labels as real targets, for the evidence of classes."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["as_real"]


def as_real(labels: Int[Tensor, "N"], classes: int, weights: Float[Tensor, "N"] | None = None) -> Float[Tensor, "N C"]:
    """4 (1[y = c] − Σ w 1[y = c] / Σ w): one centred column per class, scaled as logits.

    Example:
        >>> as_real(torch.tensor([0, 1]), 2)
        tensor([[ 2., -2.],
                [-2.,  2.]], dtype=torch.float64)
    """
    onehot = torch.nn.functional.one_hot(labels, classes).double()
    share = onehot.mean(0) if weights is None else (onehot.mT * weights.double()).sum(1) / weights.double().sum()
    return 4 * (onehot - share)
