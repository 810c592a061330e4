"""A stationary prior on the unit cube, random Fourier features of it, and its MAP hyper-parameters."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.priors import Kernel
from degp.priors.readouts import conditioned_readouts
from degp.roots import cholesky
from degp.typing import Batch

__all__ = ["FourierFeatures", "SquaredExponential", "draw_readouts", "map_prior"]


@dataclass(frozen=True)
class SquaredExponential:
    """f ~ GP(c, k) with k(x, x') = exp(−½ Σᵢ (xᵢ − x'ᵢ)² / ℓᵢ²), and y ~ N(f, σ²).        theory/stationary.md (1)

    Attributes:
        length_scales: ℓ, one per feature.
        constant: c, the prior mean of each output.
        noise_variance: σ².
    """

    length_scales: Float[Tensor, "D"]
    constant: Float[Tensor, "C"]
    noise_variance: float

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """The kernel itself; nothing is random."""
        return self

    @torch.no_grad()
    def __call__(self, left: Float[Tensor, "N D"], right: Float[Tensor, "K D"]) -> Float[Tensor, "N K"]:
        """k(x, x') for all pairs, in float64."""
        x, y = (points.double() / self.length_scales for points in (left, right))
        return torch.exp(x @ y.mT - 0.5 * x.square().sum(1)[:, None] - 0.5 * y.square().sum(1))


class FourierFeatures(nn.Module):
    """x ↦ (cos wⱼᵀx, sin wⱼᵀx) for all units j: the hidden layer.        theory/stationary.md (2)

    Args:
        frequencies: w, one row per unit. With w ~ N(0, diag ℓ⁻²) and output weights from N(0, 1/units), functions
            have the squared-exponential kernel (Rahimi and Recht, 2007).
    """

    def __init__(self, frequencies: Float[Tensor, "units D"]) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(frequencies)

    def forward(self, inputs: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        angles = inputs @ self.frequencies.mT
        return torch.cat([angles.cos(), angles.sin()], dim=-1)


@torch.no_grad()
def draw_readouts(
    hidden: FourierFeatures,
    centred: Batch,
    noise_variance: float,
    count: int,
    *,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "M F C"]:
    """Output weights drawn from their posterior given observations of f − c.        theory/stationary.md (3)

    The prior of v units is N(0, I/v). The draws a and η of `conditioned_readouts` sum to 0, so the mean of the output
    weights is the posterior mean.
    """
    features, y, units = hidden(centred.inputs), centred.targets, len(hidden.frequencies)
    a = _centred_normal(count, 2 * units, y.shape[1], like=y, generator=generator) / math.sqrt(units)
    eta = _centred_normal(count, *y.shape, like=y, generator=generator) * math.sqrt(noise_variance)
    prior, observed = (draws.movedim(0, 1).flatten(1) for draws in (a, y + eta))  # one column per draw and output
    variance, noise = y.new_full([2 * units], 1 / units), y.new_tensor(noise_variance)
    drawn = conditioned_readouts(prior, features, observed, variance, noise)
    return drawn.unflatten(1, (count, -1)).movedim(1, 0)


def map_prior(data: Batch, *, iterations: int = 100) -> SquaredExponential:
    """The prior with the maximum a posteriori ℓ, c and σ² given standardised targets.        theory/stationary.md (4)

    −2 log p(ℓ, σ² | y) = ‖L⁻¹(y − c)‖² + 2C Σᵢ log Lᵢᵢ − 2 log p(ℓ) p(σ²) + …,   K + σ²I = LLᵀ

    A priori log ℓ ~ N(√2 + ½ log D, 3), for inputs in the unit cube, and log σ² ~ N(−4, 1), as in BoTorch.
    """
    x, y = data.inputs.double(), data.targets.double()
    (N, D), C = x.shape, y.shape[1]
    center = torch.tensor([math.sqrt(2) + 0.5 * math.log(D)] * D + [-4.0]).to(x)  # of log ℓ and log σ²
    spread = torch.tensor([math.sqrt(3)] * D + [1.0]).to(x)
    logs = (center - spread.square()).requires_grad_()  # from the mode of the prior
    squares = (x[:, None] - x).square()  # (N, N, D)

    def root() -> Float[Tensor, "N N"]:
        gram = torch.exp(-0.5 * (squares @ torch.exp(-2 * logs[:D])))
        return cholesky(gram + torch.diag(logs[D].exp().expand(N)))

    def loss() -> Float[Tensor, ""]:
        L = root()
        misfit = _whiten(L, y - _best_constant(L, y)).square().sum() + 2 * C * L.diagonal().log().sum()
        return 0.5 * misfit + 0.5 * ((logs - center) / spread).square().sum() + logs.sum()

    _minimise(loss, logs, iterations)
    with torch.no_grad():
        return SquaredExponential(logs[:D].exp(), _best_constant(root(), y), logs[D].exp().item())


def _best_constant(L: Float[Tensor, "N N"], y: Float[Tensor, "N C"]) -> Float[Tensor, "C"]:
    """c = 1ᵀS⁻¹y / 1ᵀS⁻¹1 with S = LLᵀ."""
    one = _whiten(L, torch.ones_like(y[:, :1]))
    return (one * _whiten(L, y)).sum(0) / one.square().sum()


def _whiten(L: Float[Tensor, "N N"], values: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    """L⁻¹v."""
    return torch.linalg.solve_triangular(L, values, upper=False)


def _minimise(loss: Callable[[], Tensor], parameters: Tensor, iterations: int) -> None:
    optimizer = torch.optim.LBFGS([parameters], max_iter=iterations, line_search_fn="strong_wolfe")

    def evaluate() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value.item()

    optimizer.step(evaluate)


def _centred_normal(count: int, *shape: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal draws that sum to 0, rescaled to unit variance."""
    draws = torch.randn(count, *shape, dtype=like.dtype, device=like.device, generator=generator)
    return (draws - draws.mean(0)) * math.sqrt(count / (count - 1))
