"""Cholesky roots of Gram matrices, in float64, with the jitter that rounding makes necessary."""

import math
import warnings

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["NumericalWarning", "cholesky", "inverse", "regular_root"]


class NumericalWarning(UserWarning):
    """A result was changed to keep it computable; the message says by how much.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", NumericalWarning)
        ...     root = cholesky(torch.ones(2, 2))
    """


def cholesky(gram: Float[Tensor, "N N"], *, jitter: float = 0.0, most_jitter: float = 1e-3) -> Float[Tensor, "N N"]:
    """L with LLᵀ = K + jitter·(tr K / N)·I, in float64; a `NumericalWarning` says where `regular_root` added more.

    Example:
        >>> cholesky(torch.tensor([[4.0, 0.0], [0.0, 9.0]]))
        tensor([[2., 0.],
                [0., 3.]], dtype=torch.float64)
    """
    root, added = regular_root(gram, jitter=jitter, most_jitter=most_jitter)
    if added != jitter:
        scale = gram.diagonal().double().mean().item()
        warnings.warn(
            f"a Gram matrix of {len(gram)} points was not positive definite with a jitter of {jitter:g}; "
            f"{added:g} × its mean diagonal ({added * scale:.3g}) was added instead",
            NumericalWarning,
            stacklevel=2,
        )
    return root


def regular_root(
    gram: Float[Tensor, "N N"], *, jitter: float = 0.0, most_jitter: float = 1e-3
) -> tuple[Float[Tensor, "N N"], float]:
    """L with LLᵀ = K + jitter·(tr K / N)·I, in float64, and the jitter.

    Where that is not positive definite the jitter is raised tenfold, from 1e-10 at least, until it is. A jitter beyond
    `most_jitter`, or entries that are not finite, are an error.

    Example:
        >>> regular_root(torch.ones(2, 2))[1]
        1e-10
    """
    if not jitter >= 0:
        raise ValueError(f"jitter must not be negative, but it is {jitter}; 0 adds nothing to the diagonal")
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(
            f"a Gram matrix must have one row and one column per point, but its shape is {tuple(gram.shape)}; does the "
            f"kernel give k(x, x') for all pairs?"
        )
    gram = gram.double()
    scale = gram.diagonal().mean()
    tried = jitter
    while True:
        root, info = _factorised(gram, tried * scale)
        if gram.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return root, tried  # no value can be read inside a CUDA graph; a failure shows as NaN in the loss
        if not int(info) and math.isfinite(root.detach().diagonal().sum()):
            return root, tried
        tried = max(10 * tried, 1e-10)
        if tried > max(most_jitter, jitter) or not gram.isfinite().all():
            raise ValueError(_not_positive_definite(gram, jitter))


def inverse(L: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
    """L⁻¹ of a lower triangular matrix.

    Example:
        >>> inverse(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    return torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype, device=L.device), upper=False)


def _factorised(gram: Float[Tensor, "N N"], added: Float[Tensor, ""]) -> tuple[Float[Tensor, "N N"], Int[Tensor, ""]]:
    """The root of a Gram matrix with `added` on its diagonal, and LAPACK's info: 0 for success.

    On a CPU rows whose length is a multiple of 64 compete for the same cache lines: padding by eight rows of the
    identity makes it a quarter faster.
    """
    N = len(gram)
    more = 8 if N % 64 == 0 and gram.device.type == "cpu" else 0
    lifted = F.pad(gram, (0, more, 0, more))
    lifted.diagonal()[:N].add_(added)
    lifted.diagonal()[N:].fill_(1.0)
    root, info = torch.linalg.cholesky_ex(lifted)
    return root[:N, :N], info


def _not_positive_definite(gram: Tensor, jitter: float) -> str:
    if not gram.isfinite().all():
        bad = int((~gram.isfinite()).sum())
        return (
            f"a Gram matrix must be finite, but {bad} of its {gram.numel()} entries are NaN or infinite; "
            f"look for such values, or for very large ones, in the inputs and in the kernel's variances"
        )
    smallest, largest = (value.item() for value in torch.linalg.eigvalsh(gram)[[0, -1]])
    return (
        f"a Gram matrix must be positive definite, but its eigenvalues reach from {smallest:.3g} to {largest:.3g} "
        f"(jitter {jitter:g}); is the kernel symmetric and positive? Otherwise pass a larger jitter"
    )
