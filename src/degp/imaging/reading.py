"""From members' outputs to class probabilities, as each method reads them, at a temperature fitted afterwards."""

import copy
import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp import metrics, objectives
from degp.likelihoods import Categorical
from degp.selection import calibrate, first_within_one_error, predictive_of
from degp.selection.calibration import LARGEST_TEMPERATURE, golden_section, smoothed_nll, smoothed_nll_by_point
from degp.side_by_side import Variant
from degp.uncertainty import ClassPredictive

STEPS = 15  # of a golden section: a factor of e³ either way to 0.4 %


@dataclass(frozen=True)
class Reading:
    """A method's own rule: a Gaussian process with λ of each point for DE-GP, a mixture for the others.

    In float64: in float32 a class has probability 0, and an infinite NLL, from logits that are 104 apart.

    Attributes:
        objective: what the members were trained by, which says the rule.
        likelihood: with the temperature to read at.
        num_draws: of functions, for a Gaussian process.
    """

    objective: Variant
    likelihood: Categorical
    num_draws: int = 1000

    @torch.no_grad()
    def __call__(self, outputs: Float[Tensor, "M N C"]) -> ClassPredictive:
        """What is said of N points; one member alone is read as a mixture of one."""
        predictive = predictive_of(self._rule(outputs), outputs.double(), self.likelihood, num_draws=self.num_draws)
        assert isinstance(predictive, ClassPredictive)
        return predictive

    def fitted(self, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> "Reading":
        """The same at the temperature that these points like best, by a golden section; never a worse one."""
        likelihood = copy.deepcopy(self.likelihood)
        calibrate(likelihood, self._rule(outputs), outputs.double(), labels)
        new = replace(self, likelihood=likelihood)
        return new if new._nll(outputs, labels) < self._nll(outputs, labels) else self

    def widened(self, factor: float) -> "Reading":
        """The same at a temperature times this factor."""
        likelihood = copy.deepcopy(self.likelihood)
        likelihood.widen(factor)
        return replace(self, likelihood=likelihood)

    def _rule(self, outputs: Float[Tensor, "M N C"]) -> Variant:
        return self.objective if len(outputs) > 1 else objectives.de(self.likelihood)

    def _nll(self, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> float:
        return smoothed_nll(self(outputs).probabilities, labels)  # by which the temperature was searched


@dataclass(frozen=True)
class Pooled:
    """Class probabilities at a temperature T of their own, after the average over functions: ∝ p^(1/T)."""

    temperature: float = 1.0

    def __call__(self, p: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return torch.softmax(p.log() / self.temperature, dim=-1)

    @classmethod
    def fitted(cls, p: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> "Pooled":
        """At the temperature that these points like best, by a golden section; never a worse one than 1."""

        def nll(log_temperature: float) -> float:
            return smoothed_nll(cls(math.exp(log_temperature))(p), labels)

        best = golden_section(nll, -LARGEST_TEMPERATURE, LARGEST_TEMPERATURE)
        return cls(math.exp(best)) if nll(best) < nll(0.0) else cls()


@dataclass(frozen=True)
class TwoTemperatures:
    """p(y | x) ∝ E[softmax(f(x)/τ)]^(1/T): one temperature for the functions and one for their average.

    τ says how much the functions' disagreement counts, T how sure the whole is. One alone has to do both: τ, fitted by
    itself, leaves the average of an ensemble too unsure, and T by itself leaves τ as training did, which has seen no
    other images (Rahaman and Thiery, 2021, fit T alone).
    """

    functions: Reading
    average: Pooled

    def __call__(self, outputs: Float[Tensor, "M N C"]) -> Float[Tensor, "N C"]:
        return self.average(self.functions(outputs).probabilities)

    @classmethod
    def fitted(cls, reading: Reading, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> "TwoTemperatures":
        """At the pair that these points like best: T by a golden section at each step of one for τ.

        T = 1 and τ fitted alone, where the pair is not better by a standard error: of members that nearly agree only
        the product τT matters, and the search would end anywhere.
        """

        def at(functions: Reading, average: Pooled | None = None) -> tuple[Float[Tensor, "N"], TwoTemperatures]:
            p = functions(outputs).probabilities
            average = average or Pooled.fitted(p, labels)
            return smoothed_nll_by_point(average(p), labels), cls(functions, average)

        def nll(log_factor: float) -> float:
            return float(at(reading.widened(math.exp(log_factor)))[0].mean())

        best = golden_section(nll, -LARGEST_TEMPERATURE, LARGEST_TEMPERATURE, steps=STEPS)
        found = at(reading.fitted(outputs, labels), Pooled()), at(reading.widened(math.exp(best)))
        return found[first_within_one_error(torch.stack([losses for losses, _ in found]))][1]


@dataclass(frozen=True)
class Readings:
    """The same members read as training left them, at one temperature fitted afterwards, and at two."""

    plain: Reading
    fitted: Reading
    two: TwoTemperatures

    @classmethod
    def on(cls, plain: Reading, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> "Readings":
        """With the temperatures that these points like best."""
        return cls(plain, plain.fitted(outputs, labels), TwoTemperatures.fitted(plain, outputs, labels))

    def scores(self, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> dict[str, float]:
        """`class_scores` at the fitted temperature; NLL and ECE also `unfitted`, and `calibrated` by two."""
        return {
            **class_scores(self.fitted(outputs).probabilities, labels),
            **_named("unfitted", class_scores(self.plain(outputs).probabilities, labels)),
            **_named("calibrated", class_scores(self.two(outputs), labels)),
        }


def class_scores(p: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> dict[str, float]:
    """Accuracy, NLL in nats per point, and ECE over 15 bins, of class probabilities."""
    return {
        "accuracy": metrics.accuracy(p, labels),
        "nll": metrics.nll(p, labels),
        "ece": metrics.ece(p, labels, num_bins=15),
    }


def _named(word: str, scores: dict[str, float]) -> dict[str, float]:
    """NLL and ECE once more, under names that end in a word."""
    return {f"{name}_{word}": scores[name] for name in ("nll", "ece")}
