"""The exact posterior of a table's classes, and its average with the ensemble."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from degp.calibration import first_within_one_error, likely_temperature, smoothed_nll, weighted_mean
from degp.gaussian import LowRankGaussian
from degp.likelihoods import Categorical
from degp.predictive import ClassPredictive, entropy
from degp.priors.evidence import Scales
from degp.priors.exact import ExactGP
from degp.priors.labels import as_log_gamma
from degp.runtime.cpu import threads
from degp.tabular.process import BOTH
from degp.typing import Batch, joined

__all__ = ["ClassProcess"]

NUM_DRAWS, CALIBRATION_DRAWS = 1000, 128
POINTS = 4096  # at a time


@dataclass(frozen=True)
class ClassProcess:
    """One exact Gaussian process per class of the logarithms of Gamma variates.        theory/exact.md (6)–(8)

    p(y = c | x) = E softmax(f(x) / τ)_c,   f_c ~ GP given y_c = f_c(X) + N(0, σ_c²/w)

    Attributes:
        scales: of the prior, relative to the inputs that it is given.
        rows: inputs and labels that it is conditioned on, standardised.
        num_classes: C.
        exact: the posterior of each class, relative to the prior mean.
        prior_mean: of each class, that of its targets.
        temperature: τ.
        weight: in the average with the ensemble.
    """

    scales: Scales
    rows: Batch
    num_classes: int
    exact: tuple[ExactGP, ...]
    prior_mean: Float[Tensor, "C"]
    temperature: float
    weight: float = BOTH

    @classmethod
    def fit(cls, scales: Scales, rows: Batch, num_classes: int, temperature: float = 1.0) -> "ClassProcess":
        """Conditions the prior on the rows: O(CN³), by one thread, so that a saved process is restored bit-for-bit."""
        with threads(1):
            targets, noise = _observations(rows, num_classes)
            mean = weighted_mean(targets.mT, rows.weights)
            kernel, inputs = scales.nngp(), scales.apply(rows.inputs.double())
            columns = zip((targets - mean).split(1, dim=1), noise.mT, strict=True)
            exact = tuple(ExactGP.fit(kernel, inputs, y, noise_variance=variance) for y, variance in columns)
        return cls(scales, rows, num_classes, exact, mean, temperature)

    def relative_to(self, relevance: Sequence[float]) -> "ClassProcess":
        """The same process for inputs that were multiplied by these relevances."""
        factors = zip(self.scales.relevance, relevance, strict=True)
        scales = replace(self.scales, relevance=tuple(own / applied for own, applied in factors))
        inputs = self.rows.inputs * self.rows.inputs.new_tensor(relevance)
        return self.fit(scales, replace(self.rows, inputs=inputs), self.num_classes, self.temperature)

    def conditioned(self, new: Batch) -> "ClassProcess":
        """The process after more rows."""
        return self.fit(self.scales, joined(self.rows, new), self.num_classes, self.temperature)

    def calibrated(self) -> "ClassProcess":
        """At the temperature under which each row is predicted best from all others."""
        mean, variance = self._leave_one_out()
        labels, weights = self.rows.targets, self.rows.weights

        def nll(log_temperature: float) -> float:
            predictive = self._predictive(mean, variance, log_temperature, CALIBRATION_DRAWS)
            return smoothed_nll(predictive.probabilities, labels, weights)

        count = float(len(labels) if weights is None else weights.sum())
        factor = likely_temperature(nll, count)
        return replace(self, temperature=factor * self.temperature)

    def leave_one_out(self) -> ClassPredictive:
        """The prediction of each row from all others."""
        return self._predictive(*self._leave_one_out())

    def leave_one_out_nll(self) -> Float[Tensor, "N"]:
        """−log p(yₙ | y₋ₙ) per row, times its weight."""
        return _nll(self.leave_one_out(), self.rows)

    def predictive(self, points: Float[Tensor, "N D"]) -> ClassPredictive:
        """The process alone at new points, in pieces so that memory stays bounded."""
        pieces = self.scales.apply(points.double()).split(POINTS)
        return ClassPredictive.concatenate([self._predictive(*self._moments(piece)) for piece in pieces])

    def averaged(self, ensemble: ClassPredictive, process: ClassPredictive) -> ClassPredictive:
        """What is served: the mixture of the functions of both."""
        w = self.weight
        p = (1 - w) * ensemble.probabilities.double() + w * process.probabilities
        return ClassPredictive(p, entropy(p), (1 - w) * ensemble.aleatoric.double() + w * process.aleatoric)

    def is_worth_averaging(self, ensemble: ClassPredictive, rows: Batch) -> bool:
        """Whether on rows that neither has seen its NLL is at most one standard error above the ensemble's."""
        nll = torch.stack([_nll(each, rows) for each in (self.predictive(rows.inputs), ensemble)])
        return first_within_one_error(nll) == 0

    def generator(self) -> torch.Generator:
        """Of the draws behind every prediction, which all points share."""
        return torch.Generator(self.prior_mean.device).manual_seed(0)

    def _moments(self, z: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """Mean and variance of f at scaled points."""
        mean = torch.cat([posterior.mean(z) for posterior in self.exact], dim=1) + self.prior_mean
        return mean, torch.stack([posterior.variance(z) for posterior in self.exact], dim=1)

    def _leave_one_out(self) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """Mean and variance of f at each row given all others."""
        targets, noise = _observations(self.rows, self.num_classes)
        residual, variance = zip(*(posterior.leave_one_out() for posterior in self.exact), strict=True)
        return targets - torch.cat(residual, dim=1), torch.cat(variance, dim=1) - noise

    def _predictive(
        self,
        mean: Float[Tensor, "N C"],
        variance: Float[Tensor, "N C"],
        log_factor: float = 0.0,
        num_draws: int = NUM_DRAWS,
    ) -> ClassPredictive:
        """E softmax(f / τ) over independent Gaussians, by the same draws for every point and in every call."""
        q = LowRankGaussian(mean, mean.new_zeros(0, *mean.shape), variance.clamp_min(0.0))
        likelihood = Categorical(self.temperature)
        likelihood.widen(math.exp(log_factor))
        with torch.no_grad():
            return likelihood.predictive(q, num_draws=num_draws, generator=self.generator())


def _observations(rows: Batch, num_classes: int) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
    """The real targets of each class, and the variances of their noise."""
    targets, noise = as_log_gamma(rows.targets, num_classes)
    return targets, noise if rows.weights is None else noise / rows.weights.double()[:, None]


def _nll(predictive: ClassPredictive, rows: Batch) -> Float[Tensor, "N"]:
    """−log p(y) per row, times its weight; finite in single precision too."""
    tiny = torch.finfo(torch.float32).tiny
    finite = replace(predictive, probabilities=predictive.probabilities.double().clamp_min(tiny))
    return rows.weigh(-finite.log_prob(rows.targets))
