"""Other posteriors on the same features: an exact GP, laplace-torch, an SNGP head; and two distances."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from degp.methods import Kind
from degp.priors import ExactGP
from degp.priors.labels import as_real
from degp.typing import Batch
from experiments.protocols.laplace import fitted_laplace, laplace_draws
from experiments.protocols.pretrained.heads import Budget, trained_heads
from experiments.protocols.pretrained.scoring import Functions
from experiments.protocols.pretrained.sets import Problem
from experiments.protocols.random_features import RandomFeatures, precision_root, variances

__all__ = ["MOST_EXACT", "exact_gp", "knn", "laplace_last_layer", "mahalanobis", "sngp"]

DRAWS = 200
MOST_EXACT = 16_000  # points of the exact process; more need an approximation
FOURIER = 1024  # random features of SNGP, its default
RIDGE = 1.0  # prior precision of SNGP's weights, its default
NEIGHBOURS = 50
SHRINKAGE = 1e-3  # of the pooled covariance towards its mean variance

Score = Callable[[Float[Tensor, "N D"]], Float[Tensor, "N"]]


def exact_gp(problem: Problem) -> Functions:
    """Exact regression on the labels as real targets, with the heads' own prior; draws at each point's variance."""
    train, scales = problem.points.train, problem.scales
    if len(train) > MOST_EXACT:
        raise ValueError(f"the exact process takes at most {MOST_EXACT} points, but there are {len(train)}")
    real = as_real(train.targets, problem.points.classes)
    process = ExactGP.fit(scales.nngp(), train.inputs, real, noise_variance=scales.noise_variance)

    def outputs(points: Float[Tensor, "N D"]) -> Float[Tensor, "S N C"]:
        mean, variance = process.mean(points), process.variance(points, batch_size=2000).clamp_min(0)
        z = torch.randn(DRAWS, 1, mean.shape[1], dtype=mean.dtype, device=mean.device, generator=problem.generator())
        return mean + variance.sqrt()[:, None] * z  # all points share the draws: only their marginals count

    return Functions.draws(outputs, problem.points)


def laplace_last_layer(problem: Problem, budget: Budget, structure: str) -> Functions:
    """laplace-torch on the last layer of one head, trained to the maximum a posteriori; precision by evidence.

    Args:
        structure: "full" or "kron".
    """
    ensemble, _ = trained_heads(problem, budget, Kind.RDE, 1)
    posterior = fitted_laplace(ensemble.to_modules()[0], problem.points.train, structure, budget.batch_size)
    seed = problem.generator().initial_seed()
    return Functions.draws(lambda points: laplace_draws(posterior, points, DRAWS, seed), problem.points)


def sngp(problem: Problem, budget: Budget) -> Functions:
    """The output layer of SNGP (Liu et al., 2020) on the features: random Fourier features and a Laplace posterior.

    logits φ(x)ᵀW,   φ(x) = √(2/K) cos(Ωx/ℓ + b),   W_c ~ N(Ŵ_c, Σ),   Σ⁻¹ = r I + Σₙ p̂ₙ(1 − p̂ₙ) φₙφₙᵀ

    p̂ₙ is the largest probability of point n, so that one covariance serves all classes, as in its implementation; ℓ is
    the median distance of training points. The network is frozen, so there is nothing to normalise spectrally.
    """
    train, generator = problem.points.train, problem.generator()
    phi = _fourier_features(train.inputs, generator)
    features = phi(train.inputs)
    weights = _logistic(features, train.targets, problem.points.classes, budget, generator)
    p = torch.softmax(features @ weights, dim=-1).amax(-1)
    root = precision_root(features, RIDGE, p * (1 - p))

    def outputs(points: Float[Tensor, "N D"]) -> Float[Tensor, "S N C"]:
        own = phi(points)
        mean, variance = own @ weights, variances(root, own)
        z = torch.randn(DRAWS, 1, mean.shape[1], device=mean.device, generator=problem.generator())
        return mean + variance.sqrt()[:, None] * z

    return Functions.draws(outputs, problem.points)


def _fourier_features(points: Float[Tensor, "N D"], generator: torch.Generator) -> RandomFeatures:
    like = {"device": points.device, "dtype": points.dtype, "generator": generator}
    few = points[torch.randperm(len(points), device=points.device, generator=generator)[:1000]]
    scale = torch.pdist(few).median()
    frequencies = torch.randn(points.shape[1], FOURIER, **like) / scale
    return RandomFeatures(frequencies, generator, math.sqrt(2 / FOURIER))


def _logistic(
    features: Float[Tensor, "N K"], labels: Tensor, classes: int, budget: Budget, generator: torch.Generator
) -> Float[Tensor, "K C"]:
    """argmin_W −Σₙ log softmax(φₙᵀW) + ½ r ‖W‖², by Adam with the heads' budget at a rate for unit features."""
    weights = torch.zeros(features.shape[1], classes, device=features.device, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, budget.steps)
    for _ in range(budget.steps):
        rows = torch.randint(len(features), (budget.batch_size,), device=features.device, generator=generator)
        optimizer.zero_grad()
        penalty = 0.5 * RIDGE * weights.square().sum() / len(features)
        (F.cross_entropy(features[rows] @ weights, labels[rows]) + penalty).backward()
        optimizer.step()
        schedule.step()
    return weights.detach()


def mahalanobis(train: Batch, classes: int) -> Score:
    """minₖ (x − μₖ)ᵀ Σ⁻¹ (x − μₖ) with one covariance for all classes (Lee et al., 2018)."""
    x = train.inputs.double()
    means = torch.stack([x[train.targets == k].mean(0) for k in range(classes)])
    residuals = x - means[train.targets]
    covariance = residuals.mT @ residuals / len(x)
    covariance.diagonal().add_(SHRINKAGE * covariance.diagonal().mean())
    root = torch.linalg.cholesky(covariance)

    def whiten(points: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return torch.linalg.solve_triangular(root, points.double().mT, upper=False).mT

    centres = whiten(means)
    return lambda points: torch.cdist(whiten(points), centres).amin(1)


def knn(train: Batch) -> Score:
    """Distance to the 50th neighbour among the training points, features of length one (Sun et al., 2022)."""
    known = F.normalize(train.inputs)
    rank = min(NEIGHBOURS, len(known))

    def score(points: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        pieces = [torch.cdist(piece, known).kthvalue(rank, dim=1).values for piece in F.normalize(points).split(2000)]
        return torch.cat(pieces)

    return score
