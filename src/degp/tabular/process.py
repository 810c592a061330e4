"""The exact NN-GP posterior of a table: averaged with the ensemble where rows are few, alone where it is sharper."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from degp.calibration import first_within_one_error
from degp.gaussian import LowRankGaussian, average
from degp.likelihoods import LOG_2PI
from degp.predictive import RegressionPredictive
from degp.priors.evidence import Scales
from degp.priors.exact import ExactGP
from degp.runtime.cpu import threads
from degp.typing import Batch, joined

__all__ = ["Process", "best_process", "processes"]

BOTH = 0.5  # the weight of the process beside an ensemble


@dataclass(frozen=True)
class Process:
    """The exact posterior given some rows, and its weight in the average with the ensemble.

    Attributes:
        scales: of its prior, relative to the inputs that it is given.
        rows: inputs and targets that it is conditioned on, standardised.
        exact: the posterior.
        weight: 1 serves the process alone, 0 the ensemble alone.
    """

    scales: Scales
    rows: Batch
    exact: ExactGP
    weight: float = 1.0

    @classmethod
    def fit(cls, scales: Scales, rows: Batch, weight: float = 1.0) -> "Process":
        """Conditions the prior on the rows: O(N³), by one thread, so that a saved process is restored bit-for-bit."""
        with threads(1):
            return cls(scales, rows, cls._posterior(scales, rows), weight)

    @staticmethod
    def _posterior(scales: Scales, rows: Batch) -> ExactGP:
        kernel, inputs = scales.nngp(), scales.apply(rows.inputs.double())
        noise = scales.noise_variance / (torch.ones(len(rows)) if rows.weights is None else rows.weights)
        return ExactGP.fit(kernel, inputs, rows.targets.double(), noise_variance=noise.to(inputs))

    def relative_to(self, relevance: Sequence[float]) -> "Process":
        """The same process for inputs that were multiplied by these relevances."""
        factors = zip(self.scales.relevance, relevance, strict=True)
        scales = replace(self.scales, relevance=tuple(own / applied for own, applied in factors))
        inputs = self.rows.inputs * self.rows.inputs.new_tensor(relevance)
        return Process.fit(scales, replace(self.rows, inputs=inputs), self.weight)

    def widened(self) -> "Process":
        """The process with its variances times mean z² of the leave-one-out errors, where that exceeds 1.

        Prior and noise are scaled alike, so the mean stays. The scales come from some rows and the errors from all.
        """
        factor, scales = float(self._standardised_errors().square().mean()), self.scales
        if factor <= 1:
            return self
        wider = replace(
            scales, output_scale=factor * scales.output_scale, noise_variance=factor * scales.noise_variance
        )
        return Process.fit(wider, self.rows, self.weight)

    def conditioned(self, new: Batch) -> "Process":
        """The process after more rows."""
        return Process.fit(self.scales, joined(self.rows, new), self.weight)

    def weighed_against(self, in_sample_nll: float, *, has_every_row: bool) -> "Process":
        """Its weight beside an ensemble whose NLL on these rows, which it was trained on, is given.

        The process is scored by leave-one-out. An ensemble that is worse on the rows that it has seen than the process
        on rows that it has not is left out. Else the two are averaged, if the process knows every row.
        """
        alone = in_sample_nll > float(self.leave_one_out_nll().mean())
        return replace(self, weight=1.0 if alone else BOTH * has_every_row)

    def leave_one_out_nll(self) -> Float[Tensor, "N"]:
        """−log p(yₙ | y₋ₙ) per row, summed over its targets."""
        residual, variance = self.exact.leave_one_out()
        return 0.5 * (LOG_2PI + variance.log() + residual.square() / variance).sum(1)

    def leave_one_out_scores(self) -> Float[Tensor, "N"]:
        """|y − E[y | others]| / std per row, the largest over its targets."""
        return self._standardised_errors().abs().amax(1)

    def predictive(self, points: Float[Tensor, "N D"], *, joint: bool = False) -> RegressionPredictive:
        """The process alone at new points; `joint` keeps the covariance between them, at O(N³)."""
        z, C = self.scales.apply(points.double()), self.rows.targets.shape[1]
        mean = self.exact.mean(z)
        deviations = self._deviations(z) if joint else mean.new_zeros(0, len(z), 1)
        diagonal = torch.zeros_like(mean) if joint else self.exact.variance(z)[:, None].clamp_min(0.0).expand_as(mean)
        q = LowRankGaussian(mean, _per_output(deviations, C), diagonal)
        return RegressionPredictive(q, torch.full_like(mean, self.scales.noise_variance))

    def averaged(self, ensemble: RegressionPredictive, process: RegressionPredictive) -> RegressionPredictive:
        """What is served: the average of the two functions and of the two noise variances."""
        w = self.weight
        q = LowRankGaussian(*(part.double() for part in _parts(ensemble.posterior)))
        noise = (1 - w) * ensemble.aleatoric.double() + w * process.aleatoric
        return RegressionPredictive(average(q, process.posterior, w), noise)

    def _standardised_errors(self) -> Float[Tensor, "N C"]:
        residual, variance = self.exact.leave_one_out()
        return residual / variance.sqrt()

    def _deviations(self, z: Float[Tensor, "N D"]) -> Float[Tensor, "N N 1"]:
        """A root of the posterior covariance; rounding leaves eigenvalues a little below zero."""
        values, vectors = torch.linalg.eigh(self.exact.covariance(z))
        return (values.clamp_min(0.0).sqrt()[:, None] * vectors.mT)[..., None]


def processes(candidates: Sequence[Scales], rows: Batch) -> list[Process]:
    """One per prior, widened; each takes as many of the rows' inputs as it has relevances, from the first one on."""
    return [Process.fit(scales, _first_inputs(rows, len(scales.relevance))).widened() for scales in candidates]


def best_process(candidates: Sequence[Scales], rows: Batch) -> Process:
    """The process of the first scales whose leave-one-out NLL is within one standard error of the best."""
    fitted = processes(candidates, rows)
    return fitted[first_within_one_error(torch.stack([process.leave_one_out_nll() for process in fitted]))]


def _first_inputs(rows: Batch, count: int) -> Batch:
    return replace(rows, inputs=rows.inputs[:, :count])


def _parts(q: LowRankGaussian) -> tuple[Tensor, Tensor, Tensor]:
    return q.mean, q.deviations, q.diagonal


def _per_output(deviations: Float[Tensor, "M N 1"], C: int) -> Float[Tensor, "MC N C"]:
    """Independent outputs that share the deviations: one block of functions per output."""
    M, N, _ = deviations.shape
    blocks = torch.zeros(C, M, N, C, dtype=deviations.dtype, device=deviations.device)
    for c in range(C):
        blocks[c, :, :, c] = deviations[:, :, 0]
    return blocks.flatten(0, 1)
