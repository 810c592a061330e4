"""Priors over functions: Gaussian processes with mean zero, C independent outputs and one kernel per step."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.points import Inputs

__all__ = ["Kernel", "KernelPrior", "Prior", "as_prior"]

Kernel = Callable[[Inputs, Inputs], Float[Tensor, "N K"]]


@runtime_checkable
class Prior(Protocol):
    """p(f) = GP(0, k_p ⊗ I_C): gives the kernel k_p of one step.

    Example:
        >>> kernel = NNGP(depth=2).kernel()
        >>> kernel(data.inputs, batch.inputs).shape
        torch.Size([24, 8])
    """

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """k_p: the same at every call for a fixed prior, resampled for one that is estimated."""
        ...


class KernelPrior(nn.Module):
    """A fixed kernel as a prior: any function (x, x') ↦ k(x, x'), a GPyTorch kernel included.

    Example:
        >>> prior = KernelPrior(lambda a, b: torch.exp(-0.5 * torch.cdist(a, b).square()))
        >>> prior.kernel()(torch.zeros(2, 1), torch.ones(3, 1)).shape
        torch.Size([2, 3])
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """The kernel itself; its hyper-parameters are not trained here."""
        return self._evaluate

    @torch.no_grad()
    def _evaluate(self, left: Inputs, right: Inputs) -> Float[Tensor, "N K"]:
        gram = self.function(left, right)
        return gram if isinstance(gram, Tensor) else gram.to_dense()


def as_prior(prior: Any) -> Prior:
    """A prior unchanged; a plain kernel function or a GPyTorch kernel wrapped in `KernelPrior`.

    Example:
        >>> as_prior(lambda a, b: a @ b.T).kernel()(torch.ones(2, 3), torch.ones(4, 3)).shape
        torch.Size([2, 4])
    """
    if isinstance(prior, Prior) and not isinstance(prior, type):
        return prior
    if callable(prior) and not isinstance(prior, type):
        return KernelPrior(prior)
    raise TypeError(
        f"a prior must have a method kernel(generator=…) or be a kernel function k(x, x'), but it is "
        f"{prior!r}; use for example NNGP(depth=2) or gpytorch.kernels.RBFKernel()"
    )
