"""The search for the scales of a table's prior by evidence: candidates, always found from the same random state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from degp.priors.evidence import Scales, most_likely_scales
from degp.priors.labels import as_real
from degp.tabular.process import Process
from degp.typing import Batch

__all__ = ["PriorSearch", "is_worthwhile"]

WORTHWHILE = 0.02  # nats per row
ROWS_PER_RELEVANCE = 5  # with fewer, the leave-one-out NLL of scales that were fitted to the same rows is far too low
FEW, MANY = {"most_rows": 512, "steps": 40}, {"most_rows": 800, "steps": 12}  # of the evidence: at first, then refined


@dataclass(frozen=True, eq=False)
class PriorSearch:
    """Finds scales of the first inputs of a table, each candidate once.

    Attributes:
        rows: inputs (N, D + P), standardised: the features, then their pieces; real targets as the networks see them,
            or labels.
        num_features: D.
        num_classes: None for real targets.
        depth: hidden layers.
        groups: of the inputs; those of one group share their relevance.
        generator: set to `state` before each search, so that all see the same rows.
    """

    rows: Batch
    num_features: int
    num_classes: int | None
    depth: int
    groups: Sequence[int]
    generator: torch.Generator
    state: Tensor

    @classmethod
    def of(
        cls,
        rows: Batch,
        num_features: int,
        num_classes: int | None,
        *,
        depth: int,
        groups: Sequence[int],
        generator: torch.Generator,
    ) -> "PriorSearch":
        """A search that starts from the generator's present state."""
        return cls(rows, num_features, num_classes, depth, groups, generator, generator.get_state())

    def for_rows(self, rows: Batch) -> "PriorSearch":
        """The same search for other rows, targets or weights."""
        return replace(self, rows=rows)

    def linear(self) -> "PriorSearch":
        """The same search for linear functions."""
        return replace(self, depth=0)

    @cached_property
    def plain(self) -> Scales:
        """Those of the features, with a relevance each or with one for all."""
        return self._scales("relu", self._shared(self.num_features), self._own(self.num_features))

    @cached_property
    def candidates(self) -> list[Scales]:
        """The scales of the features, and those of all inputs where there is an embedding and enough rows for it."""
        embedded = self._own(self.rows.inputs.shape[1])
        if len(embedded) == self.num_features or self._is_scarce_for(embedded):
            return [self.plain]
        return [self.plain, self._scales("relu", embedded)]

    def refined(self, scales: Scales) -> Scales:
        """The same after more steps on more rows, where there are more: a few hundred may favour another optimum."""
        if len(self.rows) <= FEW["most_rows"]:
            return scales
        return self._scales(scales.activation, self._grouping(scales), start=scales, **MANY)

    def smooth(self, like: Scales) -> list[Scales]:
        """The same inputs under the erf activation, for a network that has hidden layers."""
        return [self.refined(self._scales("erf", self._grouping(like)))] if self.depth else []

    def _shared(self, num_inputs: int) -> Sequence[int]:
        """One relevance for the first inputs."""
        return (0,) * num_inputs

    def _own(self, num_inputs: int) -> Sequence[int]:
        """One relevance per group of the first inputs."""
        return self.groups[:num_inputs]

    def _grouping(self, scales: Scales) -> Sequence[int]:
        """By which these were found."""
        form = self._shared if len(set(scales.relevance)) == 1 else self._own
        return form(len(scales.relevance))

    def _scales(self, activation: str, *groupings: Sequence[int], **options: Any) -> Scales:
        """The most likely ones, by the best of these groupings of the first inputs."""
        self.generator.set_state(self.state)
        if len(groupings) > 1 and any(map(self._is_scarce_for, groupings)):
            groupings = (self._cross_validated(activation, groupings),)
        rows = replace(self.rows, targets=self._real(self.rows))
        return self._most_likely(rows, activation, groupings, **(FEW | options))

    def _is_scarce_for(self, grouping: Sequence[int]) -> bool:
        """Whether the rows that scales are fitted to are few for so many relevances."""
        return min(len(self.rows), FEW["most_rows"]) < ROWS_PER_RELEVANCE * len(set(grouping))

    def _cross_validated(self, activation: str, groupings: Sequence[Sequence[int]]) -> Sequence[int]:
        """The first grouping by which either half of the rows predicts the other half best."""
        order = torch.randperm(len(self.rows), generator=self.generator, device=self.generator.device)
        few = self.rows[order[: FEW["most_rows"]].to(self.rows.inputs.device)]
        rows, middle = replace(few, targets=self._real(few)), len(few) // 2
        halves = (rows[:middle], rows[middle:])

        def nll(grouping: Sequence[int]) -> float:
            pairs = (halves, halves[::-1])
            return sum(self._transferred_nll(activation, grouping, known, new) for known, new in pairs)

        return min(groupings, key=nll) if middle else groupings[0]

    def _transferred_nll(self, activation: str, grouping: Sequence[int], known: Batch, new: Batch) -> float:
        """−log p(y) of new rows, summed, by the process of the scales that are most likely on known rows."""
        scales = self._most_likely(known, activation, (grouping,), **FEW)
        known, new = (replace(rows, inputs=rows.inputs[:, : len(grouping)]) for rows in (known, new))
        predictive = Process.fit(scales, known).predictive(new.inputs)
        return -float(predictive.log_prob(new.targets.double()).sum())

    def _most_likely(self, rows: Batch, activation: str, groupings: Sequence[Sequence[int]], **options: Any) -> Scales:
        """Of as many inputs as the groupings have, on rows with real targets."""
        return most_likely_scales(
            rows.inputs[:, : len(groupings[0])],
            rows.targets,
            self.depth,
            activation=activation,
            weights=rows.weights,
            groupings=groupings,
            generator=self.generator,
            **options,
        )

    def _real(self, rows: Batch) -> Float[Tensor, "N C"]:
        """Targets for the evidence: themselves, or one centred column per class, scaled as logits."""
        return rows.targets if self.num_classes is None else as_real(rows.targets, self.num_classes, rows.weights)


def is_worthwhile(gain: Float[Tensor, "N"]) -> bool:
    """Whether the mean gain in NLL per row is more than one standard error, and enough.

    Example:
        >>> is_worthwhile(torch.tensor([0.4, 0.5, 0.6])), is_worthwhile(torch.tensor([0.0, 0.01]))
        (True, False)
    """
    error = float(gain.std()) / len(gain) ** 0.5
    return float(gain.mean()) > max(error, WORTHWHILE)
