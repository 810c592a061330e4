"""Scales of an NN-GP prior by evidence: one relevance per feature, the bias, the output scale and the noise."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp.priors.analytic import NNGP
from degp.priors.duals import Dual, differentiable_relu, erf, relu
from degp.priors.exact import leave_one_out
from degp.priors.weights import WeightPrior
from degp.roots import regular_root
from degp.runtime.cpu import threads
from degp.runtime.optimizers import LBFGS
from degp.typing import Batch

__all__ = ["ACTIVATIONS", "Scales", "most_likely_scales", "noise_by_target"]

HIDDEN, HIDDEN_BIAS, READOUT_BIAS = 2.0, 1.0, 0.01
JITTER = 1e-10  # of the mean prior variance, where the targets have no noise
SHRINKAGE = 0.1  # nats per unit of relevance: a feature must earn it
LOG_RELEVANCE, LOG_BIAS, LOG_NOISE = (-7.0, 3.0), (-4.0, 4.0), (-21.0, 2.0)  # bounds
WALL = 10.0  # of the quadratic penalty outside the bounds, where the evidence has no slope
BROAD = 2.0  # standard deviation of the log-normal priors on bias and output scale
NOISES = 185  # trial values within the bounds, 13 % apart
NOISE_MEDIAN, NOISE_SPREAD = 0.01, 4.0  # of the log-normal prior on the noise: a few rows do not prove its absence


@dataclass(frozen=True)
class Activation:
    """What the evidence needs of an activation.

    Attributes:
        dual: E[φ(u) φ(v)].
        differentiable: the same, with its gradient.
        log_output: bounds of the output scale's logarithm.
    """

    dual: Dual
    differentiable: Dual
    log_output: tuple[float, float]


ACTIVATIONS = {
    "relu": Activation(relu, differentiable_relu, (-4.0, 4.0)),  # homogeneous: the relevance scales its outputs as well
    "erf": Activation(erf, erf, (-4.0, 7.0)),
}


@dataclass(frozen=True)
class Scales:
    """Scales of a network's prior and of the noise.

    k⁰(x, x') = Σ_d s_d² x_d x'_d / D + b₀, then `depth` hidden layers, and a read-out of variance `output_scale`.

    Attributes:
        depth: hidden layers; without any the read-out is the only layer.
        relevance: s, one factor per feature. The prior and the networks see inputs times s (`apply`).
        bias: b₀, the bias variance of the first layer.
        output_scale: variance of the read-out's weights, times its fan-in.
        noise_variance: σ²; at least JITTER times the mean prior variance.
        log_evidence: log p(y) of the rows that the scales were fitted on.
        loo_nll: their mean leave-one-out NLL per target.
        activation: "relu", or "erf" for smooth functions.
    """

    depth: int
    relevance: tuple[float, ...]
    bias: float
    output_scale: float
    noise_variance: float
    log_evidence: float = math.nan
    loo_nll: float = math.nan
    activation: str = "relu"

    def apply(self, inputs: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Inputs times the relevance of each feature."""
        return inputs * inputs.new_tensor(self.relevance)

    def nngp(self) -> NNGP:
        """The prior over functions of the scaled inputs."""
        return NNGP(self.depth, self._weights(), self._biases(), ACTIVATIONS[self.activation].dual)

    def cross_gram(
        self, left: Float[Tensor, "N D"], right: Float[Tensor, "K D"], dual: Dual
    ) -> tuple[Float[Tensor, "N K"], Float[Tensor, "N"]]:
        """k(x, x') of scaled inputs and k(x, x), by another form of the activation's dual."""
        weights, biases = left.new_tensor(self._weights()), left.new_tensor(self._biases())  # exact in a graph too
        k = left @ right.mT / right.shape[1] + biases[0]
        v, w = (z.square().sum(1) / right.shape[1] + biases[0] for z in (left, right))
        k, variance, _ = _propagated(k, v, w, zip(weights[1:], biases[1:], strict=True), dual)
        return k, variance

    def weight_prior(self) -> WeightPrior:
        """The prior over the weights of a finite network on the scaled inputs: for initialisation and penalties."""
        return WeightPrior(self._weights(), self._biases())

    def _weights(self) -> tuple[float, ...]:
        return (1.0, *[HIDDEN] * (self.depth - 1), self.output_scale)[: self.depth + 1]

    def _biases(self) -> tuple[float, ...]:
        return (self.bias, *[HIDDEN_BIAS] * (self.depth - 1), READOUT_BIAS * self.output_scale)[: self.depth + 1]


def most_likely_scales(
    inputs: Float[Tensor, "N D"],
    targets: Float[Tensor, "N C"],
    depth: int,
    *,
    activation: str = "relu",
    weights: Float[Tensor, "N"] | None = None,
    groupings: Sequence[Sequence[int]] | None = None,
    start: "Scales | None" = None,
    most_rows: int = 512,
    steps: int = 40,
    generator: torch.Generator | None = None,
) -> Scales:
    """Scales that maximise the evidence of standardised targets: one relevance per feature, or one for all.

    The gradient of −log p(y) is tr(G ∂S) with G = ½ (C S⁻¹ − S⁻¹y yᵀS⁻¹), S = K + σ²W⁻¹.        theory/exact.md (4)
    Of several groupings, the one with the lowest leave-one-out NLL is taken.        theory/exact.md (5)

    Args:
        activation: of the networks, "relu" or "erf".
        weights: W, one per row: a row of weight w has the noise variance σ²/w, and one of weight 0 is left out.
        groupings: the group of each feature, in one or several ways; those of a group, such as a one-hot column, share
            their relevance. By default, all in one group is compared with each in its own. The first wins ties.
        start: scales to begin with, as found on fewer rows.
        most_rows: a random subset of at most this size is used, since the cost grows with the third power. One thread
            computes, so that the result is the same on a busy machine.
        steps: of L-BFGS.
    """
    w = torch.ones(len(inputs), device=inputs.device) if weights is None else weights
    order = torch.randperm(len(inputs), generator=generator, device=inputs.device)
    rows = order[w[order] > 0][:most_rows]
    if not len(rows):
        raise ValueError(f"scales need a row of positive weight, but none of the {len(inputs)} rows has one")
    x, y, w = inputs[rows].double(), targets[rows].double(), w[rows].double()
    D = x.shape[1]
    candidates = dict.fromkeys(map(tuple, groupings or ((0,) * D, range(D))))
    priors = [_Prior(depth, activation, _numbered(groups, D).to(x.device)) for groups in candidates]
    with threads(1):  # the factorisation rounds by the number of threads, and the scales decide all that follows
        fitted = [_fit(x, y, w, prior, steps, start) for prior in priors]
    return min(fitted, key=lambda scales: scales.loo_nll)


@torch.no_grad()
def noise_by_target(scales: Scales, rows: Batch) -> Float[Tensor, "C"]:
    """The noise variance of each target that maximises its own evidence, given the other scales of all.

        −log p(y_c) = ½ Σᵢ [uᵢ² / (λᵢ + σ²) + log (λᵢ + σ²)] + …,        W^½ K W^½ = UΛUᵀ,  u = Uᵀ W^½ y_c

    Args:
        scales: fitted to these targets, with a noise variance in common.
        rows: scaled inputs, and standardised targets.

    Example:
        >>> scales = Scales(1, (1.0, 1.0), 0.5, 2.0, 0.1)
        >>> noise_by_target(scales, Batch(data.inputs, data.targets)).shape
        torch.Size([1])
    """
    y = rows.targets.double()
    if y.shape[1] == 1:
        return y.new_tensor([scales.noise_variance])
    x, root = rows.inputs.double(), rows.weigh(torch.ones_like(y[:, :1]).mT).mT.sqrt()
    gram = root * scales.nngp()(x, x) * root.mT
    values, vectors = torch.linalg.eigh(gram)
    squares = (vectors.mT @ (root * y)).square()  # (N, C)
    variances = torch.linspace(*LOG_NOISE, NOISES, dtype=y.dtype, device=y.device).exp()
    least = JITTER * gram.diagonal().mean()
    spread = values.clamp_min(0)[:, None] + least + variances  # (N, V)
    log_prior = ((variances / NOISE_MEDIAN).log() / NOISE_SPREAD).square()
    nll = 0.5 * (squares.mT @ spread.reciprocal() + spread.log().sum(0) + log_prior)
    return least + variances[nll.argmin(1)]


def _numbered(groups: Sequence[int], num_features: int) -> Int[Tensor, "D"]:
    """The group of each feature, numbered from 0 without gaps."""
    if len(groups) != num_features:
        raise ValueError(
            f"a grouping must have the group of each of the {num_features} features, but it has {len(groups)}"
        )
    return torch.tensor(groups).unique(return_inverse=True)[1]


@dataclass(frozen=True)
class _Prior:
    """An NN-GP as a function of the logarithms of its P scales: one relevance per group, bias, output scale and noise.

    Attributes:
        depth: hidden layers.
        activation: by name.
        groups: the group of each feature.
    """

    depth: int
    activation: str
    groups: Int[Tensor, "D"]

    def packed(self, scales: Scales | None) -> list[float]:
        """The logarithms of these scales, or of a common start."""
        if scales is None:
            return [0.0] * (int(self.groups.max()) + 1) + [0.0, math.log(2.0), math.log(0.1)]
        relevance = dict(zip(self.groups.tolist(), scales.relevance, strict=True))
        values = [*(relevance[group] for group in sorted(relevance)), scales.bias, scales.output_scale]
        return [math.log(value) for value in (*values, scales.noise_variance)]

    def unpacked(self, log_scales: Float[Tensor, "P"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One relevance per feature, bias, output scale and noise, within their bounds."""
        bounded = self.bounded(log_scales).exp()
        return bounded[:-3][self.groups], bounded[-3], bounded[-2], bounded[-1]

    def bounded(self, log_scales: Float[Tensor, "P"]) -> Float[Tensor, "P"]:
        """The same logarithms within their bounds."""
        parts = log_scales.split([len(log_scales) - 3, 1, 1, 1])
        bounds = LOG_RELEVANCE, LOG_BIAS, ACTIVATIONS[self.activation].log_output, LOG_NOISE
        return torch.cat([part.clamp(*limits) for part, limits in zip(parts, bounds, strict=True)])

    def gram(self, x: Float[Tensor, "N D"], log_scales: Float[Tensor, "P"]) -> Float[Tensor, "N N"]:
        """The Gram matrix, differentiable in the scales."""
        relevance, bias, output, _ = self.unpacked(log_scales)
        return _gram(x * relevance, self.depth, bias, output, ACTIVATIONS[self.activation].differentiable)


def _fit(
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "N C"],
    weights: Float[Tensor, "N"],
    prior: _Prior,
    steps: int,
    start: Scales | None = None,
) -> Scales:
    """The maximum a posteriori under log-normal priors and a shrinking prior on the relevance."""
    log_scales = torch.tensor(prior.packed(start), dtype=torch.float64, device=x.device).requires_grad_()
    optimizer = LBFGS([log_scales], max_iter=steps, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Float[Tensor, ""]:
        optimizer.zero_grad()
        relevance, bias, output, noise = prior.unpacked(log_scales)
        gram = prior.gram(x, log_scales)
        value, slope, noise_slope = _negative_log_evidence(gram.detach(), y, noise.detach(), weights)
        wall = WALL * (log_scales - prior.bounded(log_scales).detach()).square().sum()
        penalty = _negative_log_prior(relevance, bias, output, noise) + wall
        ((slope * gram).sum() + noise_slope * noise + penalty).backward()
        return value + penalty.detach()

    optimizer.step(loss)
    return _scales(x, y, weights, prior, log_scales.detach())


def _gram(z: Float[Tensor, "N D"], depth: int, bias: Tensor, output: Tensor, dual: Dual) -> Float[Tensor, "N N"]:
    """The kernel of `Scales.nngp`, differentiable in its scales; the diagonal is exact, where arccos has no slope."""
    k, v = z @ z.mT / z.shape[1] + bias, z.square().sum(1) / z.shape[1] + bias
    layers = [(HIDDEN, HIDDEN_BIAS)] * (depth - 1) + [(output, READOUT_BIAS * output)]
    k, v, _ = _propagated(k, v, v, layers[:depth], dual)
    eye = torch.eye(len(z), dtype=torch.bool, device=z.device)
    return torch.where(eye, torch.diag(v), k)


def _propagated(
    k: Float[Tensor, "N K"],
    left: Float[Tensor, "N"],
    right: Float[Tensor, "K"],
    layers: Iterable[tuple[Tensor | float, Tensor | float]],
    dual: Dual,
) -> tuple[Float[Tensor, "N K"], Float[Tensor, "N"], Float[Tensor, "K"]]:
    """Covariance and variances of the inputs to those of the outputs; layers are variances of weights and biases."""
    for w, b in layers:
        k = w * dual(k, left[:, None], right[None, :]) + b
        left, right = w * dual(left, left, left) + b, w * dual(right, right, right) + b
    return k, left, right


def _negative_log_evidence(
    gram: Float[Tensor, "N N"], y: Float[Tensor, "N C"], noise: Float[Tensor, ""], weights: Float[Tensor, "N"]
) -> tuple[Float[Tensor, ""], Float[Tensor, "N N"], Float[Tensor, ""]]:
    """−log p(y), its derivative G by the Gram matrix, and that by the noise variance, tr(G W⁻¹)."""
    N, C = y.shape
    root = _root(gram, noise / weights)
    solved, inverse = torch.cholesky_solve(y, root), torch.cholesky_inverse(root)
    value = 0.5 * (y * solved).sum() + C * root.diagonal().log().sum() + 0.5 * N * C * math.log(2 * math.pi)
    slope = 0.5 * (C * inverse - solved @ solved.mT)
    return value, slope, (slope.diagonal() / weights).sum()


def _negative_log_prior(relevance: Tensor, bias: Tensor, output: Tensor, noise: Tensor) -> Float[Tensor, ""]:
    broad = (bias.log() / BROAD).square() + ((output / 2).log() / BROAD).square()
    weak = ((noise / NOISE_MEDIAN).log() / NOISE_SPREAD).square()
    return SHRINKAGE * relevance.sum() + 0.5 * (broad + weak)


def _scales(x: Tensor, y: Tensor, weights: Tensor, prior: _Prior, log_scales: Tensor) -> Scales:
    relevance, bias, output, noise = prior.unpacked(log_scales)
    gram = prior.gram(x, log_scales)
    value, _, _ = _negative_log_evidence(gram, y, noise, weights)
    served = noise + JITTER * gram.diagonal().mean()  # what the evidence has conditioned on
    return Scales(
        prior.depth,
        tuple(relevance.tolist()),
        float(bias),
        float(output),
        float(served),
        -float(value),
        float(_leave_one_out_nll(gram, y, noise, weights)),
        prior.activation,
    )


def _leave_one_out_nll(
    gram: Float[Tensor, "N N"], y: Float[Tensor, "N C"], noise: Float[Tensor, ""], weights: Float[Tensor, "N"]
) -> Float[Tensor, ""]:
    """−(1/NC) Σₙ log p(yₙ | y₋ₙ)."""
    residual, variance = leave_one_out(_root(gram, noise / weights), y)
    return 0.5 * (math.log(2 * math.pi) + variance.log() + residual.square() / variance).mean()


def _root(gram: Float[Tensor, "N N"], noise: Float[Tensor, "N"]) -> Float[Tensor, "N N"]:
    """L with LLᵀ = K + noise + jitter; where equal rows make it singular by rounding, more is added silently."""
    return regular_root(gram + torch.diag(noise), jitter=JITTER)[0]
