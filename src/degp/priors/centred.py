"""Centred priors: without the constant part that dominates functions of very deep networks."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from degp.priors.kernel import Kernel, Prior

__all__ = ["Centred"]


class Centred(nn.Module):
    """k_c(x, x') = (v/s) Cov[f(x) − f̄, f(x') − f̄] + σ_c², f ~ the prior, s the mean variance.   theory/prior.md (8)

    f̄ is a function's average over `reference`; without it over the points of the step, as in BatchNorm, at no cost.

    Args:
        prior: of f.
        variance: v, the mean variance over the reference.
        offset_variance: σ_c², of one constant per output.
        reference: the points to average over.

    Example:
        >>> prior = Centred(NNGP(depth=8))
        >>> x = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None]
        >>> round(prior.kernel()(x, x).diagonal().mean().item(), 3)
        1.001
    """

    reference: Tensor | None

    def __init__(
        self,
        prior: Prior,
        *,
        variance: float = 1.0,
        offset_variance: float = 0.001,
        reference: Shaped[Tensor, "R ..."] | None = None,
    ) -> None:
        super().__init__()
        if not (0 < variance < math.inf and 0 <= offset_variance < math.inf):
            raise ValueError(
                f"the variance must be positive and that of the offset not negative, both finite, but they are "
                f"{variance} and {offset_variance}"
            )
        if reference is not None and len(reference) < 2:
            raise ValueError(
                f"functions less their average over a reference need at least two points to vary, but it has "
                f"{len(reference)}"
            )
        self.prior = prior
        self.variance = variance
        self.offset_variance = offset_variance
        self.register_buffer("reference", reference)

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """The prior's kernel, resampled where it is random, centred."""
        return _CentredKernel(self, self.prior.kernel(generator=generator))


@dataclass(frozen=True)
class _CentredKernel:
    centred: Centred
    kernel: Kernel

    @torch.no_grad()
    def __call__(self, left: Shaped[Tensor, "N ..."], right: Shaped[Tensor, "K ..."]) -> Float[Tensor, "N K"]:
        reference = self.centred.reference
        if reference is None:
            if right is not left:
                raise ValueError(
                    "a prior centred on the points of a step has no covariance between two sets of points, "
                    f"but got sets of {len(left)} and {len(right)}; give `Centred` a reference"
                )
            return self._gram(left, len(left))
        parts = [reference, left] if right is left else [reference, left, right]
        whole = self._gram(torch.cat([part.to(left) for part in parts]), len(reference))
        rows = whole[len(reference) : len(reference) + len(left)]
        return rows[:, len(whole) - len(right) :]

    def _gram(self, points: Shaped[Tensor, "P ..."], num_reference: int) -> Float[Tensor, "P P"]:
        """k_c on points of which the first ones are the reference."""
        gram = self.kernel(points, points).double()
        with_average = gram[:num_reference].mean(0)  # Cov[f̄, f(x)]
        variance_of_average = with_average[:num_reference].mean()
        gram = gram - with_average[:, None] - with_average[None] + variance_of_average
        size = gram.diagonal()[:num_reference].mean().clamp_min(torch.finfo(gram.dtype).tiny)
        return self.centred.variance * gram / size + self.centred.offset_variance
