"""Controls of context points: members that see, or are told to be unsure of, the same images; and LogitNorm.

Each is a `Recipe.variant`: from a memberwise method, such as rDE, to one with another loss.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from degp.ensemble import HasParts
from degp.measurement import MeasurementSampler
from degp.methods import Built, Memberwise, Prepared
from degp.points import Inputs
from degp.posterior import single_precision
from degp.typing import Batch, Loss


@dataclass(frozen=True)
class Exposed:
    """Outlier exposure (Hendrycks et al., 2019): + weight · E_context [ −(1/C) Σ_c log p(c | gᵢ) ] for each member.

    With weight 0 the context images pass through the networks, and so enter BatchNorm's statistics, and no more.
    """

    context: MeasurementSampler
    weight: float = 0.5

    def __call__(self, method: Built) -> Built:
        return _Exposed(_memberwise(method), self)


@dataclass(frozen=True)
class LogitNorm:
    """LogitNorm (Wei et al., 2022): trained on gᵢ / (τ ‖gᵢ‖); τ = 0.04 as published for CIFAR-10.

    Predictions and scores are softmax(gᵢ), as in the authors' evaluation: norms are divided out in training only, so
    that a small one shows an unfamiliar image.
    """

    temperature: float = 0.04

    def __call__(self, method: Built) -> Built:
        return _LogitNorm(_memberwise(method), self)


class _Exposed(Memberwise):
    def __init__(self, method: Memberwise, settings: Exposed) -> None:
        super().__init__(method.likelihood, method.penalty)
        self.settings = settings

    def prepare(self, inputs: Inputs, *, generator: torch.Generator | None = None) -> Prepared:
        nothing = Prepared.empty(inputs)
        return Prepared(self.settings.context(inputs, generator=generator), nothing.gram_root, nothing.gram_root)

    def loss(
        self,
        outputs: Float[Tensor, "M N C"],
        weights: HasParts,
        batch: Batch,
        prepared: Prepared,
        *,
        generator: torch.Generator | None = None,
    ) -> Loss:
        B = len(batch)
        plain = super().loss(outputs[:, :B], weights, batch, prepared, generator=generator)
        if not self.settings.weight:
            return plain
        exposure = -F.log_softmax(single_precision(outputs[:, B:]), dim=-1).mean((1, 2)).sum()
        terms = {**plain.terms, "exposure": exposure.detach() / len(outputs)}
        return Loss(plain.total + self.settings.weight * exposure, terms)


class _LogitNorm(Memberwise):
    def __init__(self, method: Memberwise, settings: LogitNorm) -> None:
        super().__init__(method.likelihood, method.penalty)
        self.settings = settings

    def loss(
        self,
        outputs: Float[Tensor, "M N C"],
        weights: HasParts,
        batch: Batch,
        prepared: Prepared,
        *,
        generator: torch.Generator | None = None,
    ) -> Loss:
        outputs = single_precision(outputs)
        norms = outputs.norm(dim=-1, keepdim=True) + 1e-7
        return super().loss(outputs / norms / self.settings.temperature, weights, batch, prepared, generator=generator)


def _memberwise(method: Built) -> Memberwise:
    if not isinstance(method, Memberwise):
        raise TypeError(f"controls change the loss of members by themselves, but the method is {type(method).__name__}")
    return method
