"""Labels as real targets: for the evidence of classes, and for exact posteriors."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["as_log_gamma", "as_real"]

CONCENTRATION = 0.03  # of every class before its labels; with it, temperatures fitted by leave-one-out are near 1


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


def as_log_gamma(
    labels: Int[Tensor, "N"], classes: int, concentration: float = CONCENTRATION
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
    """Mean and variance of log g_c, where e^N(mean, variance) has both moments of g_c.        theory/exact.md (6)

    g_c ~ Gamma(α_c, 1),  α_c = a + 1[y = c]:   variance log(1 + 1/α_c),  mean log α_c − variance / 2

    Proportions of the g_c are draws from the Dirichlet posterior of the class probabilities after one label.

    Args:
        concentration: a.

    Example:
        >>> mean, variance = as_log_gamma(torch.tensor([0, 1]), 2)
        >>> mean[0], variance[0]
        (tensor([-0.3097, -5.2746], dtype=torch.float64), tensor([0.6785, 3.5361], dtype=torch.float64))
    """
    alpha = concentration + torch.nn.functional.one_hot(labels, classes).double()
    variance = (1 + 1 / alpha).log()
    return alpha.log() - variance / 2, variance
