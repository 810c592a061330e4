"""Several objectives trained at once on one ensemble of V·M members, each on its own M: one α grid, one run.

The members run together, and what the objectives share is done once: the batch, the extra points, the prior's Gram
matrix and its root. Each variant gets the gradient that it would get by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble import Ensemble, Part
from degp.gaussian import KroneckerGaussian
from degp.likelihoods import Likelihood
from degp.objectives import FunctionalObjective, MemberwiseObjective, members_on
from degp.typing import Batch, Loss

Variant = MemberwiseObjective | FunctionalObjective


class SideBySide(nn.Module):
    """Σ_v L_v of V variants on consecutive groups of M members; also an objective.

    Args:
        variants: DE, rDE, RMS and DE-GP objectives in any number; those of DE-GP must share prior, measurement sampler
            and epsilon, and may differ in α, likelihood and penalty.
        members: M.
    """

    def __init__(self, variants: Sequence[Variant], members: int) -> None:
        super().__init__()
        self.variants = list(variants)
        self._registered = nn.ModuleList(variants)  # so that they move, train and are saved with this module
        self.members = members
        self.functional = [v for v in variants if isinstance(v, FunctionalObjective)]
        for other in self.functional[1:]:
            if _shared(other) != _shared(self.functional[0]):
                raise ValueError(
                    "variants of DE-GP side by side must share one prior, one measurement sampler and one epsilon, "
                    "since these are evaluated once for all; train the others on their own"
                )

    @property
    def likelihood(self) -> Likelihood:
        """The first variant's likelihood, which knows what targets must look like."""
        return self.variants[0].likelihood

    def forward(self, ensemble: Ensemble, batch: Batch, *, generator: torch.Generator | None = None) -> Loss:
        """Σ_v L_v; the terms are the variants' own totals, by number."""
        extra, p = batch.inputs[:0], None
        if self.functional:
            extra = self.functional[0].measurement(batch.inputs, generator=generator)
        outputs = members_on(ensemble, batch.inputs, extra)
        if self.functional:
            p = self.functional[0].prior_on(batch.inputs, extra, outputs.shape[2], generator=generator)
        losses = [
            self._loss(v, outputs[self.rows(v)], _Group(ensemble, self.rows(v)), batch, p, generator)
            for v in range(len(self.variants))
        ]
        terms = {f"variant {v}": loss.total.detach() for v, loss in enumerate(losses)}
        return Loss(torch.stack([loss.total.double() for loss in losses]).sum(), terms)

    def rows(self, variant: int) -> slice:
        """Which members belong to a variant."""
        return slice(variant * self.members, (variant + 1) * self.members)

    def _loss(
        self,
        v: int,
        outputs: Float[Tensor, "M N C"],
        weights: "_Group",
        batch: Batch,
        p: KroneckerGaussian | None,
        generator: torch.Generator | None,
    ) -> Loss:
        variant = self.variants[v]
        if isinstance(variant, FunctionalObjective):
            assert p is not None
            return variant.of_outputs(outputs, weights, batch, p, generator=generator)
        return variant.of_outputs(outputs[:, : len(batch)], weights, batch)


@dataclass(frozen=True)
class _Group:
    """Some of an ensemble's members, as a penalty sees them."""

    ensemble: Ensemble
    rows: slice

    def parts(self) -> list[Part]:
        (part,) = self.ensemble.parts()  # members of one architecture, nothing shared
        parameters = {name: value[self.rows] for name, value in part.parameters.items()}
        return [Part(part.architecture, parameters, len(range(*self.rows.indices(len(self.ensemble)))))]


def _shared(variant: FunctionalObjective) -> tuple[int, int, float]:
    return id(variant.prior), id(variant.measurement), variant.nugget.epsilon
