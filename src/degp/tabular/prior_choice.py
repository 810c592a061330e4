"""Which prior a table gets: the relevance of its features, whether numbers are embedded, and the activation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from degp.calibration import weighted_mean
from degp.methods import Kind
from degp.priors.evidence import Scales, most_likely_scales
from degp.tabular.fitting import CONSTANT, TableConfig
from degp.tabular.process import Process, best_process, processes
from degp.typing import Batch

__all__ = ["PriorChoice", "choose_prior"]

WORTHWHILE = 0.02  # nats per row
COMPARED_ROWS = 800  # that decide about the embedding
FEW, MANY = {"most_rows": 512, "steps": 40}, {"most_rows": 800, "steps": 12}  # of the evidence: at first, then refined


@dataclass(frozen=True)
class PriorChoice:
    """The prior of the members, and the exact process.

    Attributes:
        scales: of the members' prior; one relevance for each of the inputs that are used, which are the first ones.
        process: of real targets under DE-GP.
    """

    scales: Scales
    process: Process | None


def choose_prior(
    rows: Batch,
    num_features: int,
    num_classes: int | None,
    config: TableConfig,
    *,
    groups: Sequence[int],
    generator: torch.Generator,
) -> PriorChoice:
    """Scales by evidence; the embedding and the activation by leave-one-out.

    The embedding and the erf activation are each taken where the leave-one-out NLL is lower by more than one standard
    error, the embedding by 0.02 at least: it costs time. The members of a table whose every row is in the process keep
    the ReLU, so that the two differ.

    Args:
        rows: inputs (N, D + P), standardised: the features, then their pieces.
        num_features: D.
        groups: of the inputs; those of one group share their relevance.
    """
    evidence = _Evidence(rows, num_classes, len(config.hidden_layers), groups, generator, generator.get_state())
    plain = evidence.scales("relu", num_features)
    if num_classes is not None:
        return PriorChoice(plain, None)
    order = torch.randperm(len(rows), generator=generator, device=generator.device)
    shuffled = rows[order[: max(config.exact_rows, COMPARED_ROWS)].to(rows.inputs.device)]
    candidates = [plain]
    if rows.inputs.shape[1] > num_features:
        candidates.append(evidence.scales("relu", rows.inputs.shape[1], isotropic=False))
    scales = evidence.refined(_worthwhile(candidates, shuffled[:COMPARED_ROWS]))
    if not _has_process(config):
        return PriorChoice(scales, None)
    process = best_process([scales, *evidence.smooth(scales)], shuffled[: config.exact_rows])
    has_every_row = len(rows) <= config.exact_rows
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

    def scales(self, activation: str, num_inputs: int, **options: Any) -> Scales:
        """The most likely ones."""
        self.generator.set_state(self.state)
        return most_likely_scales(
            self.rows.inputs[:, :num_inputs],
            _as_real(self.rows, self.num_classes),
            self.depth,
            activation=activation,
            weights=self.rows.weights,
            groups=self.groups[:num_inputs],
            generator=self.generator,
            **(FEW | options),
        )

    def refined(self, scales: Scales) -> Scales:
        """The same after more steps on more rows, where there are more: a few hundred may favour another optimum."""
        if len(self.rows) <= FEW["most_rows"]:
            return scales
        isotropic = len(set(scales.relevance)) == 1
        return self.scales(scales.activation, len(scales.relevance), isotropic=isotropic, start=scales, **MANY)

    def smooth(self, like: Scales) -> list[Scales]:
        """The same inputs under the erf activation, for a network that has hidden layers."""
        if not self.depth:
            return []
        isotropic = len(set(like.relevance)) == 1
        return [self.refined(self.scales("erf", len(like.relevance), isotropic=isotropic))]


def _worthwhile(candidates: Sequence[Scales], rows: Batch) -> Scales:
    """The last of one or two candidates if its leave-one-out NLL is lower by enough, else the first."""
    first, *others = processes(candidates, rows)
    gain = first.leave_one_out_nll() - (others or [first])[-1].leave_one_out_nll()
    error = float(gain.std()) / len(gain) ** 0.5
    return candidates[-1 if float(gain.mean()) > max(error, WORTHWHILE) else 0]


def _has_process(config: TableConfig) -> bool:
    return config.noise == CONSTANT and config.method is Kind.DEGP and config.exact_rows > 0


def _as_real(rows: Batch, num_classes: int | None) -> Float[Tensor, "N C"]:
    """Targets for the evidence: themselves, or one centred column per class, scaled as logits."""
    if num_classes is None:
        return rows.targets
    onehot = torch.nn.functional.one_hot(rows.targets, num_classes).double()
    return 4 * (onehot - weighted_mean(onehot.mT, rows.weights))
