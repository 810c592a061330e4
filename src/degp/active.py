"""Which rows of a pool to label next: those that together tell most, by the joint posterior of the ensemble.

    rows = choose(model, X_pool, 10)
    X, y = np.vstack([X, X_pool[rows]]), np.append(y, ask_for(rows))

The information that labels carry is in closed form for real targets, from the rank-M factor of the posterior. For
classes it is that of a Gaussian with the same curvature.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, Shaped
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from degp.ensemble import Ensemble
from degp.gaussian import Coefficients, LowRankGaussian
from degp.likelihoods import Categorical, Likelihood
from degp.posterior import Nugget, PointwiseAverage, posterior
from degp.prediction import evaluate
from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.uncertainty import Predictive, RegressionPredictive


@dataclass(frozen=True)
class Beliefs:
    """What a model believes of N rows, and what labels of them would tell.        theory/decisions.md (4)

    A label is an observation FₙᵀZ + N(0, Bₙ), up to a constant, of the M coefficients z of the members, in units of its
    own noise: Bₙ = I would be noise alone.

    Attributes:
        function: q(f) on the rows.
        predictive: what is said of their labels.
        factor: F, what the labels share.
        own: B, what each has to itself: its noise, and the white part of the posterior.
    """

    function: LowRankGaussian
    predictive: Predictive
    factor: Float[Tensor, "M N C"]
    own: Float[Tensor, "N C C"]


Rule = Callable[[Beliefs, int], Int[Tensor, "K"]]


def joint_information(beliefs: Beliefs, count: int) -> Int[Tensor, "K"]:
    """Rows whose labels together tell most, chosen one after the other; see `greedy_information`."""
    return greedy_information(beliefs.factor, beliefs.own, count)[0]


def variance_reduction(beliefs: Beliefs, count: int) -> Int[Tensor, "K"]:
    """Rows whose labels together leave the least variance over all rows; see `greedy_reduction`."""
    return greedy_reduction(beliefs.factor, beliefs.own, count)[0]


def single_information(beliefs: Beliefs, count: int) -> Int[Tensor, "K"]:
    """Rows whose labels tell most, each by itself (BALD): ½ log(1 + k(x, x)/σ²), or a class's mutual information."""
    if isinstance(beliefs.predictive, RegressionPredictive):
        return _largest(0.5 * torch.log1p(beliefs.function.variance() / beliefs.predictive.aleatoric).sum(1), count)
    return _largest(beliefs.predictive.epistemic, count)


def variance(beliefs: Beliefs, count: int) -> Int[Tensor, "K"]:
    """Rows where the function is least known: the members' disagreement, for a plain ensemble."""
    return _largest(beliefs.function.variance().sum(1), count)


def choose(
    model: DEGPRegressor | DEGPClassifier, X_pool: Any, batch_size: int, *, rule: Rule = joint_information
) -> Int64[np.ndarray, "K"]:
    """Numbers of the rows of a pool to label next, the most telling first.

    Args:
        model: fitted.
        X_pool: rows without labels, (N, D).
        batch_size: how many to choose; joint information tells rows apart up to about as many as there are members.
        rule: `joint_information`, `variance_reduction`, `single_information`, `variance`, or your own.
    """
    check_is_fitted(model)
    X = validate_data(model, X_pool, dtype=np.float64, reset=False)
    if not 1 <= batch_size <= len(X):
        raise ValueError(f"batch_size must be from 1 to the {len(X)} rows of the pool, but it is {batch_size}")
    return rule(beliefs_of(model, torch.tensor(X)), batch_size).cpu().numpy()


def beliefs_of(model: DEGPRegressor | DEGPClassifier, inputs: Float[Tensor, "N D"]) -> Beliefs:
    """What a fitted estimator believes of rows in original units."""
    return beliefs(
        model.ensemble_,
        model.input_scaling_.apply(inputs.double()).to(model.device),
        model.likelihood_,
        diagonal=PointwiseAverage(model.epsilon),
        coefficients=model.coefficients_,
        generator=torch.Generator(model.device).manual_seed(model.seed_),  # the same answer each time it is asked
    )


@torch.no_grad()
def beliefs(
    ensemble: Ensemble,
    inputs: Shaped[Tensor, "N ..."],
    likelihood: Likelihood,
    *,
    diagonal: Nugget | float = PointwiseAverage(),
    coefficients: Coefficients | None = None,
    generator: torch.Generator | None = None,
) -> Beliefs:
    """What any trained ensemble believes of some points; arguments as in `degp.predict`."""
    q = posterior(evaluate(ensemble, inputs), diagonal=diagonal)
    if coefficients is not None:
        q = q.updated(coefficients)
    predictive = likelihood.predictive(q, generator=generator)
    if isinstance(predictive, RegressionPredictive):
        return _of_numbers(predictive)
    if isinstance(likelihood, Categorical):
        return _of_classes(q, predictive, likelihood)
    raise TypeError(
        f"information is known for real targets and for classes, but the likelihood is a {type(likelihood).__name__}; "
        "rank the points by the epistemic part of degp.predict"
    )


Gain = Callable[[Float[Tensor, "M N C"], Float[Tensor, "N C C"]], Float[Tensor, "N"]]


def greedy_information(
    factor: Float[Tensor, "M N C"], own: Float[Tensor, "N C C"], count: int
) -> tuple[Int[Tensor, "K"], Float[Tensor, "K"]]:
    """Points chosen one by one for the largest ½ log|B_S + F_SᵀF_S|, and each one's gain.  theory/decisions.md (5), (6)

    The gain of a point is ½ log|Gₙ|, Gₙ = Bₙ + FₙᵀW Fₙ, with W = (I + Σ_S F_s B_s⁻¹F_sᵀ)⁻¹. The sum of the gains is at
    least 1 − 1/e of the best that any choice of so many points can have. O(MC²) a candidate and choice.

    Args:
        factor: F, shared by the points through M coefficients.
        own: B, symmetric and at least the identity: the noise is one.
    """
    return _greedy(factor, own, count, lambda V, G: 0.5 * torch.logdet(G))


def greedy_reduction(
    factor: Float[Tensor, "M N C"], own: Float[Tensor, "N C C"], count: int
) -> tuple[Int[Tensor, "K"], Float[Tensor, "K"]]:
    """Points chosen one by one for the least Σₙ tr FₙᵀW Fₙ, and by how much each lowers it.  theory/decisions.md (8)

    The gain of a point is tr Gₙ⁻¹VₙᵀQVₙ with Vₙ = W Fₙ and Q = Σₙ FₙFₙᵀ, and W and Gₙ as in `greedy_information`.
    O(M²C) a candidate and choice.

    Args:
        factor: F, in units of the noise.
        own: B, symmetric and at least the identity.
    """
    F = factor.double().flatten(1)  # (M, NC)
    Q = F @ F.mT

    def gain(V: Float[Tensor, "M N C"], G: Float[Tensor, "N C C"]) -> Float[Tensor, "N"]:
        lowered = torch.einsum("mnc,mnd->ncd", V, torch.einsum("lm,mnd->lnd", Q, V))
        return torch.linalg.solve(G, lowered).diagonal(dim1=1, dim2=2).sum(1)

    return _greedy(factor, own, count, gain)


@torch.no_grad()
def _greedy(
    factor: Float[Tensor, "M N C"], own: Float[Tensor, "N C C"], count: int, gain: Gain
) -> tuple[Int[Tensor, "K"], Float[Tensor, "K"]]:
    """Always the point of largest gain, a function of V = W F and G; both change with the point s that was taken.

    Vₙ ← Vₙ − V_s G_s⁻¹(F_sᵀVₙ),   Gₙ ← Gₙ − (FₙᵀV_s) G_s⁻¹(FₙᵀV_s)ᵀ:   no N × N matrix is formed.
    """
    F = factor.double()
    V, G = F, own.double() + torch.einsum("mnc,mnd->ncd", F, F)
    chosen: list[int] = []
    gains: list[Tensor] = []
    for _ in range(count):
        score = gain(V, G)
        score[chosen] = -torch.inf
        s = int(score.argmax())
        root = torch.linalg.cholesky(G[s])
        taken = torch.linalg.solve_triangular(root, V[:, s].mT, upper=False).mT  # V_s G_s^(−½)
        cross = torch.einsum("mnc,md->ncd", F, taken)  # Fₙᵀ V_s G_s^(−½)
        V, G = V - torch.einsum("md,ncd->mnc", taken, cross), G - cross @ cross.mT
        chosen.append(s)
        gains.append(score[s])
    return torch.tensor(chosen, device=F.device), torch.stack(gains)


def _of_numbers(predictive: RegressionPredictive) -> Beliefs:
    """F = A/σ and B = I + D/σ²."""
    q, noise = predictive.posterior, predictive.aleatoric
    own = torch.diag_embed(1 + q.diagonal / noise)
    return Beliefs(q, predictive, q.deviations / noise.sqrt(), own)


def _of_classes(q: LowRankGaussian, predictive: Predictive, likelihood: Categorical) -> Beliefs:
    """F = A R/τ and B = I + RᵀD R/τ², with RRᵀ/τ² the curvature of −log p(y | f).        theory/decisions.md (7)"""
    p = likelihood.probabilities(q.mean)
    R = torch.diag_embed(p.sqrt()) - p[:, :, None] * p.sqrt()[:, None, :]  # RRᵀ = diag(p) − ppᵀ
    R = R / likelihood.temperature.to(p)
    eye = torch.eye(p.shape[1], dtype=p.dtype, device=p.device)
    own = eye + R.mT @ (q.diagonal[:, :, None] * R)
    return Beliefs(q, predictive, torch.einsum("mnc,ncd->mnd", q.deviations, R), own)


def _largest(scores: Float[Tensor, "N"], count: int) -> Int[Tensor, "K"]:
    return scores.argsort(descending=True, stable=True)[:count]
