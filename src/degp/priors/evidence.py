"""Scales of the prior that maximise the marginal likelihood of the analytic NN-GP, on a small grid."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from degp.priors.analytic import NNGP, relu
from degp.priors.weights import WeightPrior

INPUT_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
OUTPUT_SCALES = torch.logspace(-2, 2, 33, dtype=torch.float64)
NOISE_VARIANCES = torch.logspace(-5, 0.5, 56, dtype=torch.float64)
__all__ = ["Scales", "most_likely_scales"]

HIDDEN, HIDDEN_BIAS, READOUT_BIAS = 2.0, 1.0, 0.01


@dataclass(frozen=True)
class Scales:
    """Variances of a ReLU network's first layer, of its read-out and of the noise, with their log evidence."""

    depth: int
    input_scale: float
    output_scale: float
    noise_variance: float
    log_evidence: float

    def nngp(self) -> NNGP:
        """The prior over functions with these scales."""
        return NNGP(self.depth, self._weights(), self._biases(), relu)

    def weight_prior(self) -> WeightPrior:
        """The prior over a finite network's weights that it comes from: for initialisation and penalties."""
        return WeightPrior(self._weights(), self._biases())

    def _weights(self) -> tuple[float, ...]:
        return (self.input_scale, *[HIDDEN] * (self.depth - 1), self.output_scale)

    def _biases(self) -> tuple[float, ...]:
        return (self.input_scale, *[HIDDEN_BIAS] * (self.depth - 1), READOUT_BIAS * self.output_scale)


def most_likely_scales(
    inputs: Float[Tensor, "N D"],
    targets: Float[Tensor, "N C"],
    depth: int,
    *,
    most_rows: int = 512,
    generator: torch.Generator | None = None,
) -> Scales:
    """The scales that maximise the marginal likelihood of standardised targets.        theory/exact.md (4)

    For each input scale K = U diag(e) Uᵀ, and for all output scales o and noise variances σ² at once
    −2 log p(y) = Σᵢ (uᵢᵀy)² / (o eᵢ + σ²) + C Σᵢ log(o eᵢ + σ²) + NC log 2π.

    Args:
        most_rows: a random subset of at most this size is used, since the cost grows with the third power.
    """
    rows = torch.randperm(len(inputs), generator=generator, device=inputs.device)[:most_rows]
    x, y = inputs[rows].double(), targets[rows].double()
    return max((_best(x, y, depth, scale) for scale in INPUT_SCALES), key=lambda scales: scales.log_evidence)


def _best(x: Float[Tensor, "N D"], y: Float[Tensor, "N C"], depth: int, input_scale: float) -> Scales:
    prior = Scales(depth, input_scale, 1.0, 0.0, 0.0).nngp()
    e, U = torch.linalg.eigh(prior(x, x))
    squares = (U.mT @ y).square().sum(1)  # (N,)
    o, s = OUTPUT_SCALES.to(e.device)[:, None, None], NOISE_VARIANCES.to(e.device)[None, :, None]
    variance = o * e.clamp(min=0) + s  # eigenvalues of a Gram matrix are negative by rounding only
    N, C = y.shape
    log_evidence = -0.5 * ((squares / variance + C * variance.log()).sum(-1) + N * C * math.log(2 * math.pi))
    i, j = divmod(int(log_evidence.argmax()), len(NOISE_VARIANCES))
    return Scales(depth, input_scale, float(OUTPUT_SCALES[i]), float(NOISE_VARIANCES[j]), float(log_evidence[i, j]))
