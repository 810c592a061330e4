"""A prior without its constant part: for networks so deep that their functions hardly vary."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from degp.priors.kernel import Kernel, Prior


class Centred(nn.Module):
    """k_c(x, x') = (v/s) Cov[f(x) − f̄, f(x') − f̄] + σ_c², f ~ the prior, s the mean variance.   theory/prior.md (8)

    f̄ is a function's average over `reference`, or over the points of the step, as BatchNorm has it, at no cost.

    Args:
        prior: what f is drawn from.
        variance: v, the mean variance over the reference.
        offset_variance: σ_c², of a constant for each output.
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
        self.prior = prior
        self.variance = variance
        self.offset_variance = offset_variance
        self.register_buffer("reference", reference)

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """That of the prior, drawn anew where it is, without its average."""
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
                    f"but {len(left)} and {len(right)} came; give `Centred` a reference"
                )
            return self._of(left, len(left))
        parts = [reference, left] if right is left else [reference, left, right]
        whole = self._of(torch.cat([part.to(left) for part in parts]), len(reference))
        beside = whole[len(reference) : len(reference) + len(left)]
        return beside[:, len(whole) - len(right) :]

    def _of(self, points: Shaped[Tensor, "P ..."], num_reference: int) -> Float[Tensor, "P P"]:
        """k_c on points of which the first are the reference."""
        gram = self.kernel(points, points).double()
        with_average = gram[:num_reference].mean(0)  # Cov[f̄, f(x)]
        variance_of_average = with_average[:num_reference].mean()
        gram = gram - with_average[:, None] - with_average[None] + variance_of_average
        size = gram.diagonal()[:num_reference].mean().clamp_min(torch.finfo(gram.dtype).tiny)
        return self.centred.variance * gram / size + self.centred.offset_variance
