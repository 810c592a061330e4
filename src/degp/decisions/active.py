"""Active learning: the rows of a pool to label next, by their joint information gain under the ensemble's posterior.

    rows = choose(model, X_pool, 10)
    X, y = np.vstack([X, X_pool[rows]]), np.append(y, ask_for(rows))

The information gain has a closed form for real targets, from the rank-M factor of the posterior. For classes it is that
of a Gaussian with the same curvature.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, Shaped
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from degp.ensemble import Ensemble
from degp.gaussian import Coefficients, LowRankGaussian
from degp.likelihoods import Categorical
from degp.methods import Method
from degp.prediction import evaluate
from degp.predictive import Predictive, RegressionPredictive
from degp.tabular.classifier import DEGPClassifier
from degp.tabular.inputs import encode_inputs
from degp.tabular.regressor import DEGPRegressor

__all__ = [
    "Beliefs",
    "SelectionRule",
    "beliefs",
    "beliefs_of",
    "choose",
    "greedy_information",
    "greedy_reduction",
    "joint_information",
    "single_information",
    "variance",
    "variance_reduction",
]


@dataclass(frozen=True)
class Beliefs:
    """The posterior on N rows, and their labels as linear observations of it.        theory/decisions.md (4)

    Up to a constant, a label is an observation Fₙᵀz + N(0, Bₙ) of the members' M coefficients z, in units of its noise:
    Bₙ = I is noise alone.

    Attributes:
        function: q(f) on the rows.
        predictive: the predictive distribution of their labels.
        factor: F, common to the labels.
        own: B, the variance of each label alone: its noise, and the white part of the posterior.

    Example:
        >>> state = beliefs(ensemble, data.inputs, method)
        >>> state.factor.shape, state.own.shape
        (torch.Size([3, 24, 1]), torch.Size([24, 1, 1]))
    """

    function: LowRankGaussian
    predictive: Predictive
    factor: Float[Tensor, "M N C"]
    own: Float[Tensor, "N C C"]


SelectionRule = Callable[[Beliefs, int], Int[Tensor, "K"]]


def joint_information(beliefs: Beliefs, count: int) -> Int[Tensor, "K"]:
    """Rows of largest joint information gain, by greedy selection; see `greedy_information`.

    Example:
        >>> joint_information(beliefs(ensemble, data.inputs, method), 3).shape
        torch.Size([3])
    """
    return greedy_information(beliefs.factor, beliefs.own, count)[0]


def variance_reduction(beliefs: Beliefs, count: int) -> Int[Tensor, "K"]:
    """Rows whose labels leave the least variance over all rows, by greedy selection; see `greedy_reduction`.

    Example:
        >>> variance_reduction(beliefs(ensemble, data.inputs, method), 3).shape
        torch.Size([3])
    """
    return greedy_reduction(beliefs.factor, beliefs.own, count)[0]


def single_information(beliefs: Beliefs, count: int) -> Int[Tensor, "K"]:
    """Rows of largest information gain, scored separately (BALD): ½ log(1 + k(x, x)/σ²), or a class's epistemic part.

    Example:
        >>> single_information(beliefs(ensemble, data.inputs, method), 3).shape
        torch.Size([3])
    """
    if isinstance(beliefs.predictive, RegressionPredictive):
        return _largest(0.5 * torch.log1p(beliefs.function.variance() / beliefs.predictive.aleatoric).sum(1), count)
    return _largest(beliefs.predictive.epistemic, count)


def variance(beliefs: Beliefs, count: int) -> Int[Tensor, "K"]:
    """Rows of largest posterior variance: the members' disagreement, for a plain ensemble."""
    return _largest(beliefs.function.variance().sum(1), count)


def choose(
    model: DEGPRegressor | DEGPClassifier, X_pool: Any, batch_size: int, *, rule: SelectionRule = joint_information
) -> Int64[np.ndarray, "K"]:
    """Indices of the rows of a pool to label next, the most informative first.

    Args:
        model: fitted.
        X_pool: rows without labels, as `predict` takes them.
        batch_size: number of rows; joint information distinguishes about as many as there are members.
        rule: `joint_information`, `variance_reduction`, `single_information`, `variance`, or your own.

    Example:
        >>> model = DEGPRegressor(random_state=0).fit(X, Y[:, 0])
        >>> rows = choose(model, torch.rand(50, 2).numpy(), batch_size=5)
        >>> len(rows)
        5
    """
    check_is_fitted(model)
    X = encode_inputs(model, X_pool)
    if not 1 <= batch_size <= len(X):
        raise ValueError(f"batch_size must be from 1 to the {len(X)} rows of the pool, but it is {batch_size}")
    return rule(beliefs_of(model, torch.tensor(X)), batch_size).cpu().numpy()


def beliefs_of(model: DEGPRegressor | DEGPClassifier, inputs: Float[Tensor, "N D"]) -> Beliefs:
    """The beliefs of a fitted estimator, for rows as its preprocessing computes them.

    Example:
        >>> model = DEGPRegressor(random_state=0).fit(X, Y[:, 0])
        >>> rows = variance_reduction(beliefs_of(model, X), 3)
    """
    return beliefs(
        model.ensemble_,
        model.input_scaling_.apply(model.embedding_.apply(inputs.double())).to(model.device),
        model.method_,
        coefficients=model.coefficients_,
        generator=torch.Generator(model.device).manual_seed(model.seed_),  # repeatable
    )


@torch.no_grad()
def beliefs(
    ensemble: Ensemble,
    inputs: Shaped[Tensor, "N ..."],
    method: Method,
    *,
    coefficients: Coefficients | None = None,
    generator: torch.Generator | None = None,
) -> Beliefs:
    """The beliefs of a trained ensemble; arguments as in `degp.predict`.

    Example:
        >>> state = beliefs(ensemble, data.inputs, method)
    """
    outputs = evaluate(ensemble, inputs)
    predictive = method.predictive(outputs, coefficients=coefficients, generator=generator)
    if isinstance(predictive, RegressionPredictive):
        return _of_numbers(predictive)
    if isinstance(method.likelihood, Categorical):
        return _of_classes(method.posterior(outputs, coefficients), predictive, method.likelihood)
    raise TypeError(
        f"the information gain is known for real targets and for classes, but the likelihood is a "
        f"{type(method.likelihood).__name__}; rank the points by the epistemic part of degp.predict"
    )


Gain = Callable[[Float[Tensor, "M N C"], Float[Tensor, "N C C"]], Float[Tensor, "N"]]


def greedy_information(
    factor: Float[Tensor, "M N C"], own: Float[Tensor, "N C C"], count: int
) -> tuple[Int[Tensor, "K"], Float[Tensor, "K"]]:
    """Greedy selection for the largest ½ log|B_S + F_SᵀF_S|, and each point's gain.  theory/decisions.md (5), (6)

    The gain of a point is ½ log|Gₙ|, Gₙ = Bₙ + FₙᵀW Fₙ, with W = (I + Σ_S F_s B_s⁻¹F_sᵀ)⁻¹. The sum of the gains is at
    least 1 − 1/e of the largest for any set of this size. O(MC²) per candidate and selected point.

    Args:
        factor: F, in units of the noise.
        own: B, symmetric and at least the identity.

    Example:
        >>> factor, own = torch.tensor([[[2.0], [1.0], [0.0]]]), torch.ones(3, 1, 1)
        >>> rows, gains = greedy_information(factor, own, count=2)
        >>> rows.tolist(), [round(gain, 3) for gain in gains.tolist()]
        ([0, 1], [0.805, 0.091])
    """
    return _greedy(factor, own, count, lambda V, G: 0.5 * torch.logdet(G))


def greedy_reduction(
    factor: Float[Tensor, "M N C"], own: Float[Tensor, "N C C"], count: int
) -> tuple[Int[Tensor, "K"], Float[Tensor, "K"]]:
    """Greedy selection for the least Σₙ tr FₙᵀW Fₙ, and each point's reduction.  theory/decisions.md (8)

    The gain of a point is tr Gₙ⁻¹VₙᵀQVₙ with Vₙ = W Fₙ and Q = Σₙ FₙFₙᵀ, and W and Gₙ as in `greedy_information`.
    O(M²C) per candidate and selected point; arguments as in `greedy_information`.

    Example:
        >>> factor, own = torch.tensor([[[2.0], [1.0], [0.0]]]), torch.ones(3, 1, 1)
        >>> rows, reductions = greedy_reduction(factor, own, count=2)
        >>> rows.tolist(), [round(reduction, 3) for reduction in reductions.tolist()]
        ([0, 1], [4.0, 0.167])
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
    """Selects the point of largest gain, a function of V = W F and G; both are updated by the selected point s.

    Vₙ ← Vₙ − V_s G_s⁻¹(F_sᵀVₙ),   Gₙ ← Gₙ − (FₙᵀV_s) G_s⁻¹(FₙᵀV_s)ᵀ:   no N × N matrix is formed.
    """
    if not 1 <= count <= len(own):
        raise ValueError(f"count must be from 1 to the {len(own)} points, but it is {count}")
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
