"""Which prior a table gets: the units of its target, the relevance of its features, their embedding, the activation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from degp.methods import Kind
from degp.priors.evidence import Scales, most_likely_scales
from degp.priors.labels import as_real
from degp.tabular.class_process import ClassProcess
from degp.tabular.fitting import CONSTANT, TableConfig
from degp.tabular.process import Process, best_process, processes
from degp.tabular.units import Units
from degp.typing import Batch

__all__ = ["PriorChoice", "UnitsChoice", "choose_prior", "choose_units"]

WORTHWHILE = 0.02  # nats per row
COMPARED_ROWS = 800  # that decide about the units and the embedding
ROWS_PER_RELEVANCE = 5  # with fewer, the leave-one-out NLL of scales that were fitted to the same rows is far too low
FEW, MANY = {"most_rows": 512, "steps": 40}, {"most_rows": 800, "steps": 12}  # of the evidence: at first, then refined


@dataclass(frozen=True)
class UnitsChoice:
    """The units of the target.

    Attributes:
        plain: the scales of the features in these units, without embedding, where units were compared.
    """

    units: Units
    plain: Scales | None


@dataclass(frozen=True)
class PriorChoice:
    """The prior of the members, and the exact process.

    Attributes:
        scales: of the members' prior; one relevance for each of the inputs that are used, which are the first ones.
        process: under DE-GP.
    """

    scales: Scales
    process: Process | ClassProcess | None


def choose_units(
    candidates: Sequence[Units],
    rows: Batch,
    num_features: int,
    config: TableConfig,
    *,
    groups: Sequence[int],
    generator: torch.Generator,
) -> UnitsChoice:
    """The last of one or two units if y is predicted better in them, left out row by row, else the first.

    The NLL must be lower by more than one standard error and 0.02, and the CRPS not higher: with the features alone,
    and with the embedding where it is worthwhile, since thresholds may look like another unit.

        theory/prediction.md (7)

    Args:
        rows: inputs (N, D + P), standardised; targets in their own units.
        num_features: D.
        generator: stays as it is.
    """
    if len(candidates) == 1:
        return UnitsChoice(candidates[0], None)
    state = generator.get_state()
    order = torch.randperm(len(rows), generator=generator.clone_state(), device=generator.device)
    some = order[:COMPARED_ROWS].to(rows.inputs.device)
    tried = [_InUnits.of(units, rows, config, groups, generator, state, some) for units in candidates]
    plain = [each.evidence.plain(num_features) for each in tried]
    place = -1 if _is_better(tried, plain) and _is_better(tried, _with_embedding(tried, plain, num_features)) else 0
    generator.set_state(state)
    return UnitsChoice(candidates[place], plain[place])


def choose_prior(
    rows: Batch,
    num_features: int,
    num_classes: int | None,
    config: TableConfig,
    *,
    groups: Sequence[int],
    generator: torch.Generator,
    plain: Scales | None = None,
) -> PriorChoice:
    """Scales by evidence; the embedding and the activation by leave-one-out.

    The embedding is taken where the leave-one-out NLL is lower by more than one standard error and by 0.02: it costs
    time. With fewer than five rows per relevance there is no embedding, and a relevance per feature must predict either
    half of the rows from the other half better than one relevance for all: with as many relevances as rows, anything is
    fitted. Where every row is in the process, members have ReLUs and the process has the erf activation, unless its NLL
    is higher by more than one standard error: far from the data the two disagree, which widens their average. Members
    of larger tables take the erf where its NLL is lower by as much.

    Args:
        rows: inputs (N, D + P), standardised: the features, then their pieces.
        num_features: D.
        groups: of the inputs; those of one group share their relevance.
        plain: the scales of the features, where they are known.
    """
    evidence = _Evidence(rows, num_classes, len(config.hidden_layers), groups, generator, generator.get_state())
    plain = plain or evidence.plain(num_features)
    if num_classes is not None:
        return PriorChoice(plain, _class_process(plain, rows, num_features, num_classes, config, generator))
    order = torch.randperm(len(rows), generator=generator, device=generator.device)
    shuffled = rows[order[: max(config.exact_rows, COMPARED_ROWS)].to(rows.inputs.device)]
    scales = evidence.refined(_worthwhile(evidence.candidates(plain, num_features), shuffled[:COMPARED_ROWS]))
    if not _has_process(config) or config.noise != CONSTANT:
        return PriorChoice(scales, None)
    has_every_row = len(rows) <= config.exact_rows
    others = evidence.smooth(scales)
    preferred = [*others, scales] if has_every_row else [scales, *others]
    process = best_process(preferred, shuffled[: config.exact_rows])
    return PriorChoice(scales if has_every_row else process.scales, process)


@dataclass(frozen=True)
class _Evidence:
    """Fits scales of the first inputs, always to the same rows, so that they can be compared."""

    rows: Batch
    num_classes: int | None
    depth: int
    groups: Sequence[int]
    generator: torch.Generator
    state: Tensor

    def shared(self, num_inputs: int) -> Sequence[int]:
        """One relevance for the first inputs."""
        return (0,) * num_inputs

    def own(self, num_inputs: int) -> Sequence[int]:
        """One relevance per group of the first inputs."""
        return self.groups[:num_inputs]

    def plain(self, num_features: int) -> Scales:
        """Those of the features, with a relevance each or with one for all."""
        return self.scales("relu", self.shared(num_features), self.own(num_features))

    def candidates(self, plain: Scales, num_features: int) -> list[Scales]:
        """The scales of the features, and those of all inputs where there is an embedding and enough rows for it."""
        embedded = self.own(self.rows.inputs.shape[1])
        if len(embedded) == num_features or self.is_scarce_for(embedded):
            return [plain]
        return [plain, self.scales("relu", embedded)]

    def scales(self, activation: str, *groupings: Sequence[int], **options: Any) -> Scales:
        """The most likely ones, by the best of these groupings of the first inputs."""
        self.generator.set_state(self.state)
        if len(groupings) > 1 and any(map(self.is_scarce_for, groupings)):
            groupings = (self._cross_validated(activation, groupings),)
        return most_likely_scales(
            self.rows.inputs[:, : len(groupings[0])],
            _as_real(self.rows, self.num_classes),
            self.depth,
            activation=activation,
            weights=self.rows.weights,
            groupings=groupings,
            generator=self.generator,
            **(FEW | options),
        )

    def is_scarce_for(self, grouping: Sequence[int]) -> bool:
        """Whether the rows that scales are fitted to are few for so many relevances."""
        return min(len(self.rows), FEW["most_rows"]) < ROWS_PER_RELEVANCE * len(set(grouping))

    def _cross_validated(self, activation: str, groupings: Sequence[Sequence[int]]) -> Sequence[int]:
        """The first grouping by which either half of the rows predicts the other half best."""
        order = torch.randperm(len(self.rows), generator=self.generator, device=self.generator.device)
        few = self.rows[order[: FEW["most_rows"]].to(self.rows.inputs.device)]
        rows, middle = replace(few, targets=_as_real(few, self.num_classes)), len(few) // 2
        halves = (rows[:middle], rows[middle:])

        def nll(grouping: Sequence[int]) -> float:
            pairs = (halves, halves[::-1])
            return sum(self._transferred_nll(activation, grouping, known, new) for known, new in pairs)

        return min(groupings, key=nll) if middle else groupings[0]

    def _transferred_nll(self, activation: str, grouping: Sequence[int], known: Batch, new: Batch) -> float:
        """−log p(y) of new rows, summed, by the process of the scales that are most likely on known rows."""
        known, new = (replace(rows, inputs=rows.inputs[:, : len(grouping)]) for rows in (known, new))
        scales = most_likely_scales(
            known.inputs,
            known.targets,
            self.depth,
            activation=activation,
            weights=known.weights,
            groupings=(grouping,),
            most_rows=FEW["most_rows"],
            steps=FEW["steps"],
            generator=self.generator,
        )
        predictive = Process.fit(scales, known).predictive(new.inputs)
        return -float(predictive.log_prob(new.targets.double()).sum())

    def refined(self, scales: Scales) -> Scales:
        """The same after more steps on more rows, where there are more: a few hundred may favour another optimum."""
        if len(self.rows) <= FEW["most_rows"]:
            return scales
        return self.scales(scales.activation, self._grouping(scales), start=scales, **MANY)

    def smooth(self, like: Scales) -> list[Scales]:
        """The same inputs under the erf activation, for a network that has hidden layers."""
        return [self.refined(self.scales("erf", self._grouping(like)))] if self.depth else []

    def _grouping(self, scales: Scales) -> Sequence[int]:
        """By which these were found."""
        form = self.shared if len(set(scales.relevance)) == 1 else self.own
        return form(len(scales.relevance))


@dataclass(frozen=True)
class _InUnits:
    """A target in some units: what finds its scales, and the rows that score them."""

    units: Units
    evidence: _Evidence
    rows: Batch

    @classmethod
    def of(
        cls,
        units: Units,
        rows: Batch,
        config: TableConfig,
        groups: Sequence[int],
        generator: torch.Generator,
        state: Tensor,
        scored: Tensor,
    ) -> "_InUnits":
        own = replace(rows, targets=units.apply(rows.targets).float())
        return cls(units, _Evidence(own, None, len(config.hidden_layers), groups, generator, state), own[scored])

    def scores(self, scales: Scales) -> tuple[Float[Tensor, "N"], float]:
        """−log p(y) of each row, and the CRPS of y, left out row by row."""
        (process,) = processes([scales], self.rows)
        z = process.rows.targets
        residual, variance = process.exact.leave_one_out()
        nll = process.leave_one_out_nll() + self.units.log_slope(z)
        return nll, self.units.crps(z - residual, variance.expand_as(residual), z)


def _is_better(tried: Sequence[_InUnits], scales: Sequence[Scales]) -> bool:
    """Whether the last units predict better than the first: by enough in NLL, and not worse in CRPS."""
    (first, first_crps), *_, (last, last_crps) = (each.scores(own) for each, own in zip(tried, scales, strict=True))
    return _is_worthwhile(first - last) and last_crps <= first_crps


def _with_embedding(tried: Sequence[_InUnits], plain: Sequence[Scales], num_features: int) -> list[Scales]:
    """The scales that each would have: with the embedding, where it is worthwhile."""
    pairs = zip(tried, plain, strict=True)
    return [_worthwhile(each.evidence.candidates(scales, num_features), each.rows) for each, scales in pairs]


def _worthwhile(candidates: Sequence[Scales], rows: Batch) -> Scales:
    """The last of one or two candidates if its leave-one-out NLL is lower by enough, else the first."""
    nll = [process.leave_one_out_nll() for process in processes(candidates, rows)]
    return candidates[-1 if _is_worthwhile(nll[0] - nll[-1]) else 0]


def _is_worthwhile(gain: Float[Tensor, "N"]) -> bool:
    """Whether the mean gain is more than one standard error, and enough."""
    error = float(gain.std()) / len(gain) ** 0.5
    return float(gain.mean()) > max(error, WORTHWHILE)


def _has_process(config: TableConfig) -> bool:
    return config.method is Kind.DEGP and config.exact_rows > 0


def _class_process(
    scales: Scales, rows: Batch, num_features: int, num_classes: int, config: TableConfig, generator: torch.Generator
) -> ClassProcess | None:
    """Of as many rows as keep its C roots as large as two of `exact_rows` rows; the generator stays as it is."""
    if not _has_process(config):
        return None
    most = max(2, int(config.exact_rows * (2 / num_classes) ** 0.5))
    if len(rows) > most:
        order = torch.randperm(len(rows), generator=generator.clone_state(), device=generator.device)
        rows = rows[order[:most].to(rows.inputs.device)]
    return ClassProcess.fit(scales, replace(rows, inputs=rows.inputs[:, :num_features]), num_classes).calibrated()


def _as_real(rows: Batch, num_classes: int | None) -> Float[Tensor, "N C"]:
    """Targets for the evidence: themselves, or one centred column per class, scaled as logits."""
    if num_classes is None:
        return rows.targets
    return as_real(rows.targets, num_classes, rows.weights)
