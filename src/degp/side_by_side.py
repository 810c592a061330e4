"""Several objectives trained at once on one ensemble of V·M members, each on its own M: one α grid, one run.

The members run together, and what the objectives share is done once: the batch, the extra points, the prior's Gram
matrix and its root. Each variant gets the gradient that it would get by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import vmap

from degp.ensemble import Ensemble, Part
from degp.execution import Beside
from degp.gaussian import KroneckerGaussian, kl_divergence
from degp.likelihoods import Likelihood
from degp.objectives import FunctionalObjective, MemberwiseObjective, members_on
from degp.posterior import posterior
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
        extra, root = batch.inputs[:0], batch.inputs.new_empty(0, 0)
        if self.functional:
            extra = self.functional[0].measurement(batch.inputs, generator=generator)
        with Beside(batch.inputs) as work:
            if self.functional:
                root = self.functional[0].prior_root(batch.inputs, extra, generator=generator)
        outputs = members_on(ensemble, batch.inputs, extra)
        work.join(root)
        p = KroneckerGaussian(root, outputs.shape[2]) if self.functional else None
        divergences = iter(self._divergences(outputs, p))
        losses = []
        for v, variant in enumerate(self.variants):
            own, weights = outputs[self.rows(v)], _Group(ensemble, self.rows(v))
            if isinstance(variant, FunctionalObjective):
                q = posterior(own, diagonal=variant.nugget)
                losses.append(variant.of_posterior(q, weights, batch, next(divergences), generator=generator))
            else:
                losses.append(variant.of_outputs(own[:, : len(batch)], weights, batch))
        terms = {f"variant {v}": loss.total.detach() for v, loss in enumerate(losses)}
        return Loss(torch.stack([loss.total.double() for loss in losses]).sum(), terms)

    def rows(self, variant: int) -> slice:
        """Which members belong to a variant."""
        return slice(variant * self.members, (variant + 1) * self.members)

    def _divergences(self, outputs: Float[Tensor, "VM N C"], p: KroneckerGaussian | None) -> Float[Tensor, "V"]:
        """KL[q ‖ p] of all variants of DE-GP in one batched call: p is the same for all."""
        if p is None:
            return outputs.new_zeros(0)
        chosen = [outputs[self.rows(v)] for v, variant in enumerate(self.variants) if variant in self.functional]
        nugget = self.functional[0].nugget
        return vmap(lambda own: kl_divergence(posterior(own, diagonal=nugget), p))(torch.stack(chosen))


@dataclass(frozen=True)
class _Group:
    """Some of an ensemble's members, as a penalty sees them."""

    ensemble: Ensemble
    rows: slice

    def parts(self) -> list[Part]:
        (part,) = self.ensemble.parts()  # members of one architecture, nothing shared
        own, first = part.rows.start, self.rows.start
        start = max(own, first)  # of those members of the group that are on this rank, perhaps none
        stop = max(start, min(part.rows.stop, self.rows.stop))
        parameters = {name: value[start - own : stop - own] for name, value in part.parameters.items()}
        return [Part(part.architecture, parameters, stop - start, rows=slice(start - first, stop - first))]

    def total(self, own: Float[Tensor, ""]) -> Float[Tensor, ""]:
        return self.ensemble.total(own)


def _shared(variant: FunctionalObjective) -> tuple[int, int, float]:
    return id(variant.prior), id(variant.measurement), variant.nugget.epsilon
