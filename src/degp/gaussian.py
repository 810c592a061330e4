"""Gaussian algebra: a low-rank Gaussian, a Kronecker one, and the divergence between them. Float64 inside."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from degp.roots import cholesky, inverse

if TYPE_CHECKING:
    from gpytorch.distributions import MultivariateNormal

__all__ = [
    "Coefficients",
    "KroneckerGaussian",
    "LowRankGaussian",
    "average",
    "kl_divergence",
]


class LowRankGaussian:
    """f ~ N(m, AᵀA + D) over N points with C outputs each, D = diag(d).        theory/posterior.md (4)

    The entries of f are ordered point by point: entry nC + c is output c at point n. A draw is
    f = m + Aᵀz + √d·e with z ~ N(0, I_M) and e ~ N(0, I): the M coefficients z are what conditioning updates, and
    e is white: independent from point to point.

    Args:
        mean: m.
        deviations: A, one function per member.
        diagonal: d ≥ 0, one number for all entries or one per entry.

    Example:
        >>> q = LowRankGaussian(torch.zeros(4, 1), torch.ones(2, 4, 1), 0.5)
        >>> q.variance()[0], q.covariance()[0, 1]
        (tensor([2.5000]), tensor(2.))
        >>> q.sample(100).shape
        torch.Size([100, 4, 1])
        >>> informed = q.condition(torch.tensor([0]), torch.tensor([[1.0]]), noise_variance=0.5)
        >>> bool(informed.variance()[3] < q.variance()[3])
        True
    """

    def __init__(
        self,
        mean: Float[Tensor, "N C"],
        deviations: Float[Tensor, "M N C"],
        diagonal: Float[Tensor, "N C"] | Float[Tensor, ""] | float,
    ) -> None:
        if deviations.ndim != 3 or deviations.shape[1:] != mean.shape:
            raise ValueError(
                f"deviations must be (M, N, C) over the mean's (N, C) = {tuple(mean.shape)}, "
                f"but they are {tuple(deviations.shape)}"
            )
        self.mean = mean
        self.deviations = deviations
        self.diagonal = _as_diagonal(diagonal, mean)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, C): members, points, outputs."""
        M, N, C = self.deviations.shape
        return M, N, C

    def variance(self) -> Float[Tensor, "N C"]:
        """Marginal variances, k(x, x) on its diagonal."""
        return self.deviations.square().sum(0) + self.diagonal

    def covariances(self) -> Float[Tensor, "N C C"]:
        """k(x, x), the C × C covariance of each point."""
        A = self.deviations.double()
        return (torch.einsum("mnc,mnd->ncd", A, A) + torch.diag_embed(self.diagonal)).to(self.mean)

    def covariance(self) -> Float[Tensor, "NC NC"]:
        """The whole covariance AᵀA + D, dense: for small problems and inspection."""
        A, d = self._flat()
        return (A.mT @ A + torch.diag(d)).to(self.mean)

    def marginal(self, points: Int[Tensor, "K"] | slice) -> "LowRankGaussian":
        """The same Gaussian on some of its points."""
        return LowRankGaussian(self.mean[points], self.deviations[:, points], self.diagonal[points])

    def sample(self, num_draws: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "S N C"]:
        """Joint draws, S functions on all N points: m + Aᵀz + √d·e; differentiable in m, A and d."""
        M, N, C = self.shape
        z = _normal(num_draws, M, like=self.mean, generator=generator)
        e = _normal(num_draws, N, C, like=self.mean, generator=generator)
        with _full_precision(self.mean):
            return self.mean + torch.tensordot(z, self.deviations, dims=1) + self.diagonal.sqrt() * e

    def sample_marginals(self, num_draws: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "S N C"]:
        """Draws with each point's own C × C covariance, independent from point to point."""
        M, N, C = self.shape
        z = _normal(num_draws, N, M, like=self.mean, generator=generator)
        e = _normal(num_draws, N, C, like=self.mean, generator=generator)
        with _full_precision(self.mean):
            return self.mean + torch.einsum("snm,mnc->snc", z, self.deviations) + self.diagonal.sqrt() * e

    def log_density(self, values: Float[Tensor, "N C"]) -> Float[Tensor, ""]:
        """log N(f | m, AᵀA + D) by the Woodbury identity.        theory/gaussian.md (3)

        −2 log q(f) = ‖r‖²_D⁻¹ − ‖L⁻¹A D⁻¹r‖² + log|D| + log|LLᵀ| + NC log 2π,   r = f − m,  LLᵀ = I + A D⁻¹Aᵀ
        """
        A, d = self._flat()
        r = self._residuals(values, "values")
        L = _capacitance_root(A, d)
        inner = torch.linalg.solve_triangular(L, (A @ (r / d))[:, None], upper=False)
        quadratic = (r.square() / d).sum() - inner.square().sum()
        return -0.5 * (quadratic + _logdet(L, d) + len(r) * math.log(2 * math.pi))

    def coefficients(
        self,
        targets: Float[Tensor, "N C"],
        noise_variance: Float[Tensor, "N C"] | Float[Tensor, ""] | float,
        *,
        before: "Coefficients | None" = None,
    ) -> "Coefficients":
        """Posterior of the M coefficients z after noisy observations of every point.        theory/conditioning.md (2)

        P = I + A (D + Σ)⁻¹Aᵀ = LLᵀ,   z | y ~ N(P⁻¹A (D + Σ)⁻¹(y − m), P⁻¹)

        `updated` applies them to any other points of the same functions.

        Args:
            before: the coefficients after earlier observations of other points; precisions add up.
        """
        A, d = self._flat()
        s = d + _as_diagonal(noise_variance, self.mean, name="noise_variance").double().flatten()
        r = self._residuals(targets, "targets")
        L, b = _capacitance_root(A, s), A @ (r / s)
        if before is not None:
            R = before.precision_root
            added = L @ L.mT - torch.eye(len(L), dtype=L.dtype, device=L.device)
            L, b = torch.linalg.cholesky_ex(R @ R.mT + added).L, b + R @ (R.mT @ before.mean)
        return Coefficients(torch.cholesky_solve(b[:, None], L).squeeze(1), L)

    def updated(self, coefficients: "Coefficients") -> "LowRankGaussian":
        """The Gaussian at points that were not observed: m + Aᵀμ and L⁻¹A in place of m and A; D stays."""
        shift, rotated = coefficients.apply(self.deviations)
        return LowRankGaussian(self.mean + shift, rotated, self.diagonal)

    def condition(
        self,
        points: Int[Tensor, "K"] | Bool[Tensor, "N"],
        targets: Float[Tensor, "K C"],
        noise_variance: Float[Tensor, "K C"] | Float[Tensor, ""] | float,
    ) -> "LowRankGaussian":
        """The Gaussian given y = f(points) + noise, again of low rank.        theory/conditioning.md (4)

        At unobserved points only z changes. At an observed one the white part is inferred too, by the share
        ρ = d / (d + σ²):  f = (1 − ρ)(m + Aᵀz) + ρy + N(0, (1 − ρ)d). Costs O(M²KC + M²NC); equals dense conditioning.
        """
        points = torch.arange(len(self.mean), device=points.device)[points]  # −1 is the last; a mask has its rows
        _require_distinct(points)
        observed = self.marginal(points)
        noise = _as_diagonal(noise_variance, observed.mean, name="noise_variance")
        after = self.updated(observed.coefficients(targets, noise))
        kept = torch.ones_like(self.diagonal)  # 1 − ρ
        kept[points] = noise / (observed.diagonal + noise)
        learned = torch.zeros_like(self.mean)
        learned[points] = targets.to(self.mean)
        return LowRankGaussian(kept * after.mean + (1 - kept) * learned, kept * after.deviations, kept * self.diagonal)

    def to_gpytorch(self) -> "MultivariateNormal":
        """The same distribution for GPyTorch and BoTorch, its covariance represented as a root plus a diagonal."""
        from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
        from linear_operator.operators import DiagLinearOperator, LowRankRootLinearOperator

        root = LowRankRootLinearOperator(self.deviations.flatten(1).mT.contiguous())
        covariance = root + DiagLinearOperator(self.diagonal.flatten())
        if self.mean.shape[1] == 1:
            return MultivariateNormal(self.mean[:, 0], covariance)
        return MultitaskMultivariateNormal(self.mean, covariance, interleaved=True)

    def _flat(self) -> tuple[Float[Tensor, "M NC"], Float[Tensor, "NC"]]:
        return self.deviations.double().flatten(1), self.diagonal.double().flatten()

    def _residuals(self, values: Float[Tensor, "N C"], name: str) -> Float[Tensor, "NC"]:
        if values.shape != self.mean.shape:
            raise ValueError(
                f"{name} must have one value per point and output, (N, C) = {tuple(self.mean.shape)}, "
                f"but their shape is {tuple(values.shape)}"
            )
        return values.double().flatten() - self.mean.double().flatten()


@dataclass(frozen=True)
class Coefficients:
    """z ~ N(μ, L⁻ᵀL⁻¹): the posterior of the M coefficients of the members given observations.

    It is all that an update of new inputs needs.

    Example:
        >>> q = LowRankGaussian(torch.zeros(4, 1), torch.ones(2, 4, 1), 0.5)
        >>> z = q.coefficients(torch.ones(4, 1), noise_variance=0.5)
        >>> q.updated(z).mean[0]
        tensor([0.8889])
    """

    mean: Float[Tensor, "M"]
    precision_root: Float[Tensor, "M M"]

    def apply(self, deviations: Float[Tensor, "M N C"]) -> tuple[Float[Tensor, "N C"], Float[Tensor, "M N C"]]:
        """Aᵀμ and L⁻¹A, in the precision of A."""
        A = deviations.double()
        shift = torch.tensordot(self.mean, A, dims=1)
        rotated = torch.linalg.solve_triangular(self.precision_root, A.flatten(1), upper=False).view_as(A)
        return shift.to(deviations), rotated.to(deviations)


def average(q: LowRankGaussian, p: LowRankGaussian, weight: float) -> LowRankGaussian:
    """The Gaussian with the moments of the mixture (1 − w) q + w p.        theory/gaussian.md (5)

    m = (1 − w) m_q + w m_p,   Σ = (1 − w) Σ_q + w Σ_p + w (1 − w) δδᵀ,   δ = m_p − m_q

    Example:
        >>> q = LowRankGaussian(torch.zeros(1, 1), torch.zeros(2, 1, 1), 1.0)
        >>> p = LowRankGaussian(torch.ones(1, 1), torch.zeros(2, 1, 1), 1.0)
        >>> average(q, p, 0.5).mean
        tensor([[0.5000]])
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"the weight of p in the mixture must be between 0 and 1, but it is {weight}")
    if p.mean.shape != q.mean.shape:
        raise ValueError(
            f"q and p must live on the same points and outputs, but q has (N, C) = {tuple(q.mean.shape)} "
            f"and p {tuple(p.mean.shape)}"
        )
    difference = p.mean - q.mean
    deviations = [
        (1 - weight) ** 0.5 * q.deviations,
        weight**0.5 * p.deviations,
        (weight * (1 - weight)) ** 0.5 * difference[None],
    ]
    diagonal = (1 - weight) * q.diagonal + weight * p.diagonal
    return LowRankGaussian(q.mean + weight * difference, torch.cat(deviations), diagonal)


@dataclass(frozen=True)
class KroneckerGaussian:
    """f ~ N(0, K ⊗ I_C): C independent functions under one kernel, K = LLᵀ on N points.        theory/prior.md (3)

    Attributes:
        gram_root: L.
        num_outputs: C.
        inverse_root: L⁻¹, where it is known.

    Example:
        >>> KroneckerGaussian.from_gram(torch.eye(3), num_outputs=2).covariance().shape
        torch.Size([6, 6])
    """

    gram_root: Float[Tensor, "N N"]
    num_outputs: int
    inverse_root: Float[Tensor, "N N"] | None = None

    @classmethod
    def from_gram(cls, gram: Float[Tensor, "N N"], num_outputs: int, *, jitter: float = 0.0) -> "KroneckerGaussian":
        """K + jitter·(tr K / N)·I factorised; see `cholesky` for what happens where K is not positive definite."""
        return cls(cholesky(gram, jitter=jitter), num_outputs)

    def covariance(self) -> Float[Tensor, "NC NC"]:
        """K ⊗ I_C, dense: for small problems and inspection."""
        L = self.gram_root
        return torch.kron(L @ L.mT, torch.eye(self.num_outputs, dtype=L.dtype, device=L.device))


def kl_divergence(q: LowRankGaussian, p: KroneckerGaussian) -> Float[Tensor, ""]:
    """KL[q ‖ p] of q = N(m, AᵀA + D) from p = N(0, K ⊗ I_C), K = LLᵀ.        theory/kl.md (5)

    2 KL = ‖L⁻¹m‖² + ‖L⁻¹A‖² + Σₙ (K⁻¹)ₙₙ Σ_c dₙ_c − NC + C log|K| − log|D| − log|I + A D⁻¹Aᵀ|

    Costs O(N³ + MN²C) time and O(MNC + N²) memory; the NC × NC covariance is never formed.

    Example:
        >>> q = LowRankGaussian(torch.zeros(3, 1), torch.zeros(2, 3, 1), 1.0)
        >>> kl_divergence(q, KroneckerGaussian.from_gram(torch.eye(3), num_outputs=1)).item()
        0.0
    """
    M, N, C = q.shape
    if (N, C) != (len(p.gram_root), p.num_outputs):
        raise ValueError(
            f"q and p must live on the same points and outputs, but q has (N, C) = {(N, C)} "
            f"and p {(len(p.gram_root), p.num_outputs)}"
        )
    L = p.gram_root
    A, d = q._flat()
    functions = torch.cat([q.mean.double()[None], q.deviations.double()])  # (1 + M, N, C)
    inverse_root = inverse(L) if p.inverse_root is None else p.inverse_root
    whitened = inverse_root @ functions.transpose(0, 1).flatten(1)  # a product is faster than a second solve

    quadratic_and_trace = whitened.square().sum()  # ‖L⁻¹m‖² + ‖L⁻¹A‖²
    trace_diagonal = inverse_root.square().sum(0) @ d.view(N, C).sum(1)
    logdet_p = 2 * C * L.diagonal().log().sum()
    logdet_q = _logdet(_capacitance_root(A, d), d)
    return 0.5 * (quadratic_and_trace + trace_diagonal - N * C + logdet_p - logdet_q)


def _capacitance_root(A: Float[Tensor, "M NC"], d: Float[Tensor, "NC"]) -> Float[Tensor, "M M"]:
    """L with LLᵀ = I + A D⁻¹Aᵀ: at least the identity, so that it always has a root when d > 0."""
    if _can_be_read(d) and not bool((d > 0).all()):
        raise ValueError(
            "the covariance AᵀA + D (plus the noise of observations, where there are any) must be regular, but its "
            "diagonal part has zeros; do all members agree exactly? Give a positive diagonal or noise variance"
        )
    scaled = A / d.sqrt()
    return torch.linalg.cholesky_ex(torch.eye(len(A), dtype=A.dtype, device=A.device) + scaled @ scaled.mT).L


def _logdet(L: Float[Tensor, "M M"], d: Float[Tensor, "NC"]) -> Float[Tensor, ""]:
    """log|AᵀA + D| = log|D| + log|LLᵀ|, the matrix determinant lemma."""
    return d.log().sum() + 2 * L.diagonal().log().sum()


def _as_diagonal(
    value: Float[Tensor, "N C"] | Float[Tensor, ""] | float,
    like: Float[Tensor, "N C"],
    name: str = "diagonal",
) -> Float[Tensor, "N C"]:
    diagonal = value if isinstance(value, Tensor) else like.new_full((), value)
    if diagonal.ndim and diagonal.shape != like.shape:
        raise ValueError(
            f"{name} must be one number or one per point and output, (N, C) = {tuple(like.shape)}, "
            f"but its shape is {tuple(diagonal.shape)}"
        )
    # only where reading a value is free: on an accelerator it would stall the queue at every step
    if _can_be_read(diagonal) and not bool((diagonal >= 0).all()):
        raise ValueError(
            f"{name} is a variance and must not be negative or NaN, but its minimum is {diagonal.min():.3g}"
        )
    return diagonal.expand(like.shape)


def _require_distinct(points: Int[Tensor, "K"]) -> None:
    repeated = len(points) - len(points.unique())
    if repeated:
        raise ValueError(
            f"observed points must be distinct, but {repeated} of {len(points)} are repeated; "
            f"average the repeated observations and divide their noise variance by how many there are"
        )


def _full_precision(like: Tensor) -> torch.autocast:
    """Autocast switched off: in bfloat16 the products of a draw would lose the deviations."""
    return torch.autocast(like.device.type, enabled=False)


def _normal(*shape: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(*shape, dtype=like.dtype, device=like.device, generator=generator)


def _can_be_read(values: Tensor) -> bool:
    """Whether reading values is free: on an accelerator it would stall the queue, under vmap it is impossible."""
    return values.device.type == "cpu" and not torch._C._are_functorch_transforms_active()
