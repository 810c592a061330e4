"""From members' outputs to class probabilities, as each method reads them, at a temperature fitted afterwards."""

import copy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp import metrics, objectives
from degp.likelihoods import Categorical
from degp.selection import calibrate, predictive_of
from degp.side_by_side import Variant
from degp.uncertainty import ClassPredictive


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

    def _rule(self, outputs: Float[Tensor, "M N C"]) -> Variant:
        return self.objective if len(outputs) > 1 else objectives.de(self.likelihood)

    def _nll(self, outputs: Float[Tensor, "M N C"], labels: Int[Tensor, "N"]) -> float:
        return float(-self(outputs).log_prob(labels).mean())


def class_scores(predictive: ClassPredictive, labels: Int[Tensor, "N"]) -> dict[str, float]:
    """Accuracy, NLL in nats per point, and ECE over 15 bins."""
    p = predictive.probabilities
    return {
        "accuracy": metrics.accuracy(p, labels),
        "nll": metrics.nll(p, labels),
        "ece": metrics.ece(p, labels, num_bins=15),
    }
