"""Class probabilities of an ensemble at temperatures fitted after training.

    calibrated = fit_temperatures(trained, validation)
    predictive = calibrated.one_temperature(trained.outputs(images))

The members stay as they are.
"""

import copy
import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp import metrics
from degp.calibration import (
    LARGEST_TEMPERATURE,
    calibrate,
    first_within_one_error,
    golden_section,
    smoothed_nll,
    smoothed_nll_by_point,
)
from degp.likelihoods import Categorical
from degp.methods import Method, with_likelihood
from degp.predictive import ClassPredictive
from degp.typing import Batch
from degp.vision.fitting import Trained

__all__ = [
    "Calibrated",
    "PooledTemperature",
    "TemperatureScaled",
    "TwoTemperatures",
    "class_scores",
    "fit_temperatures",
]

SEARCHES = 3  # of a temperature, each where the last one ended: a loss such as LogitNorm leaves the outputs' scale open
STEPS = 15  # of a golden section: a factor of e³ either way to 0.4 %


@dataclass(frozen=True)
class TemperatureScaled:
    """A method's predictive distribution at the temperature of its likelihood.

    In float64: in float32 a class has probability 0, and an infinite NLL, from logits that are 104 apart.

    Attributes:
        method: of the members' training.
        num_draws: of functions, for DE-GP.

    Example:
        >>> outputs = torch.randn(4, 50, 3, generator=torch.Generator().manual_seed(0))
        >>> plain = TemperatureScaled(with_likelihood(method, Categorical()))
        >>> fitted = plain.fitted(outputs, outputs.mean(0).argmax(-1))  # labels as the members predict: sharper
        >>> fitted.temperature < plain.temperature, fitted(outputs).probabilities.shape
        (True, torch.Size([50, 3]))
    """

    method: Method
    num_draws: int = 1000

    @torch.no_grad()
    def __call__(self, outputs: Float[Tensor, "M N C"]) -> ClassPredictive:
        generator = torch.Generator(outputs.device).manual_seed(0)  # common random numbers: scores are compared
        predictive = self.method.predictive(outputs.double(), num_draws=self.num_draws, generator=generator)
        assert isinstance(predictive, ClassPredictive)
        return predictive

    @property
    def temperature(self) -> float:
        """τ."""
        assert isinstance(self.method.likelihood, Categorical)
        return self.method.likelihood.temperature.item()

    def scaled(self, factor: float) -> "TemperatureScaled":
        """The same at a temperature times this factor."""
        likelihood = copy.deepcopy(self.method.likelihood)
        likelihood.widen(factor)
        return replace(self, method=with_likelihood(self.method, likelihood))

    def fitted(self, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> "TemperatureScaled":
        """The same at the temperature that minimises the NLL of these points; never a worse one."""
        new = self.scaled(1.0)
        for _ in range(SEARCHES):
            factor = calibrate(new.method, outputs.double(), labels)
            if abs(math.log(factor)) < 0.99 * LARGEST_TEMPERATURE:
                break
        before, after = (smoothed_nll(each(outputs).probabilities, labels) for each in (self, new))
        return new if after < before else self


@dataclass(frozen=True)
class PooledTemperature:
    """A temperature T of the class probabilities, after the average over functions: ∝ p^(1/T).

    Example:
        >>> PooledTemperature(0.5)(torch.tensor([[0.9, 0.1], [0.6, 0.4]]))
        tensor([[0.9878, 0.0122],
                [0.6923, 0.3077]])
    """

    temperature: float = 1.0

    def __call__(self, p: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return torch.softmax(p.log() / self.temperature, dim=-1)

    @classmethod
    def fitted(cls, p: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> "PooledTemperature":
        """At the temperature that minimises the NLL of these points; never a worse one than 1."""

        def nll(log_temperature: float) -> float:
            return smoothed_nll(cls(math.exp(log_temperature))(p), labels)

        best = golden_section(nll, -LARGEST_TEMPERATURE, LARGEST_TEMPERATURE)
        return cls(math.exp(best)) if nll(best) < nll(0.0) else cls()


@dataclass(frozen=True)
class TwoTemperatures:
    """p(y | x) ∝ E[softmax(f(x)/τ)]^(1/T): one temperature for the functions and one for their average.

    τ sets the weight of the functions' disagreement, T the confidence of their average. A single temperature must do
    both: τ alone leaves the average of an ensemble underconfident, and T alone leaves τ at its value from training,
    which has seen no held-out images (Rahaman and Thiery, 2021, fit T alone).

    Example:
        >>> from degp.methods import de
        >>> scaled = TwoTemperatures(TemperatureScaled(de(Categorical())), PooledTemperature(0.5))
        >>> scaled(torch.tensor([[[2.0, 0.0]], [[0.0, 0.0]]]))  # of two members
        tensor([[0.8326, 0.1674]], dtype=torch.float64)
    """

    functions: TemperatureScaled
    average: PooledTemperature

    def __call__(self, outputs: Float[Tensor, "M N C"]) -> Float[Tensor, "N C"]:
        return self.average(self.functions(outputs).probabilities)

    @classmethod
    def fitted(
        cls, functions: TemperatureScaled, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]
    ) -> "TwoTemperatures":
        """At the pair that minimises the NLL of these points: T by a golden section at each step of one for τ.

        T = 1 and τ fitted alone, where the pair is not better by a standard error: if members nearly agree, only the
        product τT is identified.
        """

        def at(scaled: TemperatureScaled, pooled: PooledTemperature | None = None) -> tuple[Tensor, TwoTemperatures]:
            p = scaled(outputs).probabilities
            pooled = pooled or PooledTemperature.fitted(p, labels)
            return smoothed_nll_by_point(pooled(p), labels), cls(scaled, pooled)

        def nll(log_factor: float) -> float:
            return float(at(functions.scaled(math.exp(log_factor)))[0].mean())

        best = golden_section(nll, -LARGEST_TEMPERATURE, LARGEST_TEMPERATURE, steps=STEPS)
        one, two = at(functions.fitted(outputs, labels), PooledTemperature()), at(functions.scaled(math.exp(best)))
        return (one, two)[first_within_one_error(torch.stack([one[0], two[0]]))][1]


@dataclass(frozen=True)
class Calibrated:
    """One ensemble's predictive distribution uncalibrated, at one fitted temperature, and at two.

    Example:
        >>> outputs = torch.randn(4, 50, 3, generator=torch.Generator().manual_seed(0))
        >>> labels = outputs.mean(0).argmax(-1)
        >>> calibrated = Calibrated.fitted(with_likelihood(method, Categorical()), outputs, labels)
        >>> scores = calibrated.scores(outputs, labels)
        >>> scores["nll"] < scores["nll_unfitted"]
        True
    """

    uncalibrated: TemperatureScaled
    one_temperature: TemperatureScaled
    two_temperatures: TwoTemperatures

    @classmethod
    def fitted(cls, method: Method, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> "Calibrated":
        """At the temperatures that minimise the NLL of these points."""
        plain = TemperatureScaled(method)
        return cls(plain, plain.fitted(outputs, labels), TwoTemperatures.fitted(plain, outputs, labels))

    def scores(self, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> dict[str, float]:
        """`class_scores` at one fitted temperature; NLL and ECE also `_unfitted`, and `_calibrated` by two."""
        return {
            **class_scores(self.one_temperature(outputs).probabilities, labels),
            **_suffixed("unfitted", class_scores(self.uncalibrated(outputs).probabilities, labels)),
            **_suffixed("calibrated", class_scores(self.two_temperatures(outputs), labels)),
        }


def fit_temperatures(trained: Trained, validation: Batch, *, batch_size: int | None = None) -> Calibrated:
    """The ensemble's predictive distributions, with temperatures fitted on validation images."""
    outputs = trained.outputs(validation.inputs, batch_size=batch_size)
    return Calibrated.fitted(trained.method, outputs, validation.targets)


def class_scores(p: Float[Tensor, "N C"], labels: Int[Tensor, "N"]) -> dict[str, float]:
    """Accuracy, NLL in nats per point, and ECE over 15 bins, of class probabilities.

    Example:
        >>> scores = class_scores(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
        >>> {name: round(value, 3) for name, value in scores.items()}
        {'accuracy': 0.5, 'nll': 0.511, 'ece': 0.35}
    """
    return {
        "accuracy": metrics.accuracy(p, labels),
        "nll": metrics.nll(p, labels),
        "ece": metrics.ece(p, labels, num_bins=15),
    }


def _suffixed(suffix: str, scores: dict[str, float]) -> dict[str, float]:
    return {f"{name}_{suffix}": scores[name] for name in ("nll", "ece")}
