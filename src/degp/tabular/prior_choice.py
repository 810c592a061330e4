"""Which prior a table gets: the units of its target, the relevance of its features, their embedding, the activation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from degp.calibration import first_within_one_error
from degp.methods import Kind
from degp.priors.evidence import Scales
from degp.tabular.class_process import ClassProcess
from degp.tabular.fitting import CONSTANT, TableConfig
from degp.tabular.missing import MissingNoise, noise_of_missing
from degp.tabular.prior_search import PriorSearch, is_worthwhile
from degp.tabular.process import Process, best_process, processes
from degp.tabular.units import Units
from degp.typing import Batch

__all__ = ["PriorChoice", "UnitsChoice", "choose_prior", "choose_units"]

COMPARED_ROWS = 800  # that decide about the units and the embedding


@dataclass(frozen=True)
class UnitsChoice:
    """The units of the target, and what was found in them.

    Attributes:
        noise: of rows with missing cells.
        search: for the prior of targets in these units, with rows weighted by their noise.
    """

    units: Units
    noise: MissingNoise
    search: PriorSearch


@dataclass(frozen=True)
class PriorChoice:
    """The prior of the members, and the exact process.

    Attributes:
        scales: of the members' prior; one relevance for each of the inputs that are used, which are the first ones.
        process: under DE-GP.
    """

    scales: Scales
    process: Process | ClassProcess | None


def choose_units(candidates: Sequence[Units], search: PriorSearch, indicators: Sequence[int] = ()) -> UnitsChoice:
    """The last of one or two units if y is predicted better in them, left out row by row, else the first.

    The NLL must be lower by more than one standard error and 0.02, and the CRPS not higher: with the features alone,
    and with the embedding where it is worthwhile, since thresholds may look like another unit.

        theory/prediction.md (7)

    Args:
        search: for targets in their own units; its generator stays as it is.
        indicators: of missing cells among the inputs; rows with such cells may have larger noise.
    """
    rows, generator = search.rows, search.generator
    order = torch.randperm(len(rows), generator=generator.clone_state(), device=generator.device)
    some = order[:COMPARED_ROWS].to(rows.inputs.device)
    tried = [_InUnits.of(units, search, indicators, some) for units in candidates]
    place = 0
    if len(tried) > 1 and _is_better(tried, [each.search.plain for each in tried]):
        place = -1 if _is_better(tried, [each.worthwhile() for each in tried]) else 0
    generator.set_state(search.state)
    chosen = tried[place]
    return UnitsChoice(chosen.units, chosen.noise, chosen.search)


def choose_prior(search: PriorSearch, config: TableConfig) -> PriorChoice:
    """Scales by evidence; the embedding and the activation by leave-one-out.

    The embedding is taken where the leave-one-out NLL is lower by more than one standard error and by 0.02: it costs
    time. With fewer than five rows per relevance there is no embedding, and a relevance per feature must predict either
    half of the rows from the other half better than one relevance for all: with as many relevances as rows, anything is
    fitted. Where every row is in the process, members have ReLUs and the process has the erf activation, unless its NLL
    is higher by more than one standard error: far from the data the two disagree, which widens their average. Members
    of larger tables take the erf where its NLL is lower by as much.
    """
    rows, generator, plain = search.rows, search.generator, search.plain
    if search.num_classes is not None:
        return PriorChoice(plain, _class_process(search, config))
    order = torch.randperm(len(rows), generator=generator, device=generator.device)
    shuffled = rows[order[: max(config.exact_rows, COMPARED_ROWS)].to(rows.inputs.device)]
    scales = search.refined(_worthwhile(search.candidates, shuffled[:COMPARED_ROWS]))
    if not _has_process(config) or config.noise != CONSTANT:
        return PriorChoice(scales, None)
    has_every_row = len(rows) <= config.exact_rows
    others = search.smooth(scales)
    preferred = [*others, scales] if has_every_row else [scales, *others]
    process = best_process(preferred, shuffled[: config.exact_rows])
    return PriorChoice(scales if has_every_row else process.scales, process)


@dataclass(frozen=True)
class _InUnits:
    """A target in some units: what finds its scales, and which rows score them."""

    units: Units
    noise: MissingNoise
    search: PriorSearch
    scored: Tensor

    @classmethod
    def of(cls, units: Units, search: PriorSearch, indicators: Sequence[int], scored: Tensor) -> "_InUnits":
        rows = replace(search.rows, targets=units.apply(search.rows.targets).float())
        noise = noise_of_missing(search.for_rows(rows[scored]), indicators)
        return cls(units, noise, search.for_rows(noise.weigh(rows)), scored)

    def worthwhile(self) -> Scales:
        """The scales that would be taken: with the embedding, where it pays."""
        return _worthwhile(self.search.candidates, self.search.rows[self.scored])

    def scores(self, scales: Scales) -> tuple[Float[Tensor, "N"], float]:
        """−log p(y) of each row, and the CRPS of y, left out row by row."""
        (process,) = processes([scales], self.search.rows[self.scored])
        z = process.rows.targets
        residual, variance = process.exact.leave_one_out()
        nll = process.leave_one_out_nll() + self.units.log_slope(z)
        return nll, self.units.crps(z - residual, variance.expand_as(residual), z)


def _is_better(tried: Sequence[_InUnits], scales: Sequence[Scales]) -> bool:
    """Whether the last units predict better than the first: by enough in NLL, and not worse in CRPS."""
    (first, first_crps), *_, (last, last_crps) = (each.scores(own) for each, own in zip(tried, scales, strict=True))
    return is_worthwhile(first - last) and last_crps <= first_crps


def _worthwhile(candidates: Sequence[Scales], rows: Batch) -> Scales:
    """The last of one or two candidates if its leave-one-out NLL is lower by enough, else the first."""
    nll = [process.leave_one_out_nll() for process in processes(candidates, rows)]
    return candidates[-1 if is_worthwhile(nll[0] - nll[-1]) else 0]


def _has_process(config: TableConfig) -> bool:
    return config.method is Kind.DEGP and config.exact_rows > 0


def _class_process(search: PriorSearch, config: TableConfig) -> ClassProcess | None:
    """Of linear functions, or of networks where these are better by more than one standard error, left out row by row.

    It has as many rows as keep its C roots as large as two of `exact_rows` rows. The generator stays as it is.
    """
    if not _has_process(config):
        return None
    assert search.num_classes is not None
    rows, generator = search.rows, search.generator
    most = max(2, int(config.exact_rows * (2 / search.num_classes) ** 0.5))
    if len(rows) > most:
        order = torch.randperm(len(rows), generator=generator.clone_state(), device=generator.device)
        rows = rows[order[:most].to(rows.inputs.device)]
    rows = replace(rows, inputs=rows.inputs[:, : search.num_features])
    state = generator.get_state()
    linear = search.linear().plain
    generator.set_state(state)
    tried = [ClassProcess.fit(scales, rows, search.num_classes).calibrated() for scales in (linear, search.plain)]
    return tried[first_within_one_error(torch.stack([process.leave_one_out_nll() for process in tried]))]
