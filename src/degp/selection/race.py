"""Choosing on validation data: variants trained side by side, those clearly behind dropped, one taken."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from degp.ensemble import Ensemble
from degp.likelihoods import Likelihood
from degp.prediction import evaluate
from degp.selection.calibration import calibrate_with_care
from degp.selection.contest import Contest
from degp.selection.rules import contenders, largest_within_one_error
from degp.training import Captured, Checkpoints, Eager, History, Stepping, epoch_of, fit
from degp.training.capture import adam
from degp.typing import Batch


@dataclass(frozen=True)
class Budget:
    """How long and how fast to train.

    Attributes:
        epochs: at most.
        batch_size: points a step.
        learning_rate: of Adam, × 0.99 every 5 epochs.
        patience: epochs without progress of any variant on the validation data after which to stop.
        max_seconds: stop after this time, at the end of a step.
        heat: epochs after which variants that are clearly behind are dropped; a multiple of 5.
        batches_per_epoch: at most, so that judging, patience and the learning rate keep their pace on large tables.
    """

    epochs: int = 1000
    batch_size: int = 256
    learning_rate: float = 0.01
    patience: int = 100
    max_seconds: float | None = None
    heat: int = 50
    batches_per_epoch: int = 32


@dataclass(frozen=True)
class Selected:
    """The variant that was chosen, at its best epoch, and how all of them scored."""

    index: int
    ensemble: Ensemble
    likelihood: Likelihood
    validation_nll: list[float]
    history: History


def select(
    ensemble: Ensemble,
    contest: Contest,
    data: Batch,
    *,
    alphas: Sequence[float],
    budget: Budget = Budget(),
    checkpoints: Checkpoints | None = None,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Selected:
    """Trains all variants on the same batches, picks one at its best epoch, and calibrates it.

    Args:
        alphas: α of each variant; the largest that the validation data do not speak against is taken.
        checkpoints: where to save; a run that was broken off goes on from there.
    """
    several = len(alphas) > 1
    optimizer = adam(_trained(ensemble, contest), budget.learning_rate)
    first = min(budget.heat, budget.epochs) if several else budget.epochs
    run = partial(_run, data=data, budget=budget, generator=generator, progress=progress)
    history = run(ensemble, contest, optimizer, epochs=first, seconds=budget.max_seconds, checkpoints=checkpoints)
    nll = contest.nll.mean(1)
    kept = list(range(len(alphas)))
    if several and budget.epochs > first:
        kept = contenders(contest.nll, alphas)
        ensemble, contest, optimizer = _reduced(kept, ensemble, contest, optimizer)
        left, epochs = _left(budget.max_seconds, history), budget.epochs - first
        later = run(ensemble, contest, optimizer, epochs=epochs, seconds=left, checkpoints=_final(checkpoints))
        history = _joined(history, later)
        nll[kept] = contest.nll.mean(1)
    own = largest_within_one_error(contest.nll, [alphas[v] for v in kept])
    chosen, likelihood = contest.winner(own, ensemble), contest.best_likelihoods[own]
    validation = contest.validation
    calibrate_with_care(likelihood, contest.race.variants[own], evaluate(chosen, validation.inputs), validation.targets)
    return Selected(kept[own], chosen, likelihood, nll.tolist(), history)


def discard(checkpoints: Checkpoints) -> None:
    """Deletes what a selection saved."""
    for stage in (_final(checkpoints), checkpoints):
        if stage is not None:
            stage.discard()


def epochs_done(checkpoints: Checkpoints) -> int:
    """How many epochs a selection that was broken off has behind it, by its checkpoints; 0 where it has none."""
    newest = [stage.newest() for stage in (checkpoints, _final(checkpoints)) if stage is not None]
    return sum(epoch_of(path) for path in newest if path is not None)


def _run(
    ensemble: Ensemble,
    contest: Contest,
    optimizer: torch.optim.Adam,
    *,
    data: Batch,
    budget: Budget,
    epochs: int,
    seconds: float | None,
    checkpoints: Checkpoints | None,
    generator: torch.Generator | None,
    progress: bool | None,
) -> History:
    stepping, batch_size = _stepping(ensemble, data, budget.batch_size)
    return fit(
        ensemble,
        data,
        contest,
        epochs=epochs,
        batch_size=batch_size,
        batches_per_epoch=budget.batches_per_epoch,
        stepping=stepping,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.99),
        validation=contest.judge,
        stop=lambda _: int(contest.stale) >= budget.patience,
        max_seconds=seconds,
        checkpoints=checkpoints,
        resume=True,
        generator=generator,
        progress=progress,
    )


def _stepping(ensemble: Ensemble, data: Batch, batch_size: int) -> tuple[Stepping, int]:
    """On a GPU a step is hundreds of small operations: one graph, for which all batches have the same size."""
    if data.inputs.device.type != "cuda" or ensemble.mesh.world.size > 1:
        return Eager(), batch_size
    return Captured(), len(data) // math.ceil(len(data) / batch_size)


def _reduced(
    kept: Sequence[int], ensemble: Ensemble, contest: Contest, optimizer: torch.optim.Adam
) -> tuple[Ensemble, Contest, torch.optim.Adam]:
    """Some of the variants, and Adam as it stands for these: the others are gone as if they had never been there."""
    rows, mesh = contest.rows_of(kept), ensemble.mesh
    chosen = ensemble.whole()[rows]
    assert isinstance(chosen, Ensemble)
    fewer, block = chosen.split(mesh), mesh.block(len(rows))
    smaller = contest.reduced(kept, fewer)
    reduced = adam(_trained(fewer, smaller), float(optimizer.param_groups[0]["lr"]))
    for own, parameter in zip(fewer.parameters(), ensemble.parameters(), strict=True):
        reduced.state[own] = {
            name: mesh.all_members(value, len(ensemble))[rows][block].clone() if value.ndim else value.clone()
            for name, value in optimizer.state[parameter].items()
        }
    for parameter in smaller.race.parameters():  # the likelihoods', which are the same objects
        if parameter in optimizer.state:
            reduced.state[parameter] = optimizer.state[parameter]
    return fewer, smaller, reduced


def _trained(ensemble: Ensemble, contest: Contest) -> list[torch.nn.Parameter]:
    return [p for p in (*ensemble.parameters(), *contest.parameters()) if p.requires_grad]


def _final(checkpoints: Checkpoints | None) -> Checkpoints | None:
    """Where the variants that are left save: their checkpoints are of another form."""
    return None if checkpoints is None else replace(checkpoints, folder=Path(checkpoints.folder) / "final")


def _left(seconds: float | None, history: History) -> float | None:
    return None if seconds is None else max(0.0, seconds - history.last.get("seconds", 0.0))


def _joined(first: History, second: History) -> History:
    """One history of two runs, the second going on where the first ended."""
    before = {name: first.last.get(name, 0) for name in ("epoch", "step", "seconds")}
    return History(
        first.records + [r | {name: r[name] + since for name, since in before.items()} for r in second.records]
    )
