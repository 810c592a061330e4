"""⑥ The loop: epochs of mini-batches with validation, history, progress and checkpoints."""

import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from degp.data import check_inputs
from degp.distributed import Mesh, require_same
from degp.ensemble import Ensemble
from degp.execution import kept_randomness, no_denormals
from degp.objectives import Objective
from degp.training.checkpoint import CheckpointError, Checkpoints
from degp.training.history import History
from degp.training.progress import progress_bar
from degp.training.replicas import average_statistics
from degp.training.step import NonFiniteLossError, TrainState, no_order
from degp.training.stepping import Eager, Stepping
from degp.typing import Batch, Loss

_log = logging.getLogger(__name__)

Validation = Callable[[Ensemble], Mapping[str, float]]


def fit(
    ensemble: Ensemble,
    data: Batch,
    objective: Objective,
    *,
    epochs: int,
    batch_size: int | None = None,
    batches_per_epoch: int | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    scheduler: LRScheduler | Sequence[LRScheduler] = (),
    validation: Batch | Validation | None = None,
    stop: Callable[[History], bool] = lambda history: False,
    max_seconds: float | None = None,
    stepping: Stepping = Eager(),
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> History:
    """Trains the ensemble, and the objective's own parameters, in place.

    Args:
        ensemble: on the device where it is to be trained; the data must be there too. Where it is split over ranks
            (`Ensemble.split`), every rank calls `fit` with its own block and the same of everything else.
        data: the training set; whole on every rank, replicas take their parts of each batch.
        objective: from `objectives`, or any callable of that form.
        epochs: passes over the data.
        batch_size: largest batch; an epoch is split evenly. All data at once by default.
        batches_per_epoch: at most; where the data have more, an epoch is so many batches of rows drawn anew, and what
            is done after each epoch comes sooner.
        optimizer: one or several torch optimisers; Adam with learning rate 1e-3 by default.
        scheduler: torch schedulers, stepped after each epoch.
        validation: data on which the objective's terms are measured after each epoch, or a function that measures
            whatever it likes.
        stop: asked after each epoch whether to end early.
        max_seconds: end after this time of training, at the end of a step.
        stepping: `Eager`, or `Captured` for whole steps as CUDA graphs; also the place for augmentation and precision.
        checkpoints: where and how often to save; the last state is saved too, and on Ctrl-C.
        resume: go on from the newest checkpoint, if there is one; equal to never having stopped, to the bit.
        generator: for the order of the data and all draws of the objective; one seeded by chance by default.
        progress: a progress bar; by default where the output is a terminal.
    """
    undecided, mesh = ensemble.execution is None, ensemble.mesh
    generator = generator or _seeded_by_chance(data.inputs.device, mesh)
    probe = generator.clone_state()

    def transform(inputs: Tensor) -> Tensor:
        return stepping.transform(inputs, probe)

    state = TrainState(
        ensemble,
        objective,
        _optimizers(optimizer, ensemble, objective),
        _as_list(scheduler),
        generator,
    )
    sizes = {"epochs": epochs, "batch_size": batch_size, "batches_per_epoch": batches_per_epoch}
    limits = {**sizes, "max_seconds": max_seconds, "checkpoints": checkpoints}
    require_same(mesh.world, lambda: {"data": data, **_settings(state), "stepping": stepping, **limits})
    _check_sizes(epochs, batch_size, batches_per_epoch)
    _check(ensemble, data, objective, batch_size, transform)
    if undecided:
        _choose_way(ensemble, transform(data.inputs[: batch_size or len(data)]))
    if checkpoints is not None:
        checkpoints.start(state, resume=resume)
    plan = _Plan(
        epochs=epochs,
        batch_size=batch_size or len(data),
        batches_per_epoch=batches_per_epoch or len(data),
        deadline=math.inf if max_seconds is None else max_seconds,
        stop=stop,
        validation=validation,
        checkpoints=checkpoints,
        progress=progress,
    )
    ensemble.train()
    try:
        with no_denormals():
            _run(state, data, stepping, plan)
    except NonFiniteLossError as error:
        raise NonFiniteLossError(f"{error}; {_last_good(checkpoints)}; try a smaller learning rate") from None
    except KeyboardInterrupt:
        if checkpoints is not None and state.whole and mesh.world.size == 1:  # other ranks may be at other steps
            checkpoints.save(state)
        raise
    ensemble.eval()
    return state.history


@dataclass(frozen=True)
class _Plan:
    """How long a run goes on, in which pieces, and what is done beside its steps: `fit`'s arguments, none left open."""

    epochs: int
    batch_size: int
    batches_per_epoch: int
    deadline: float
    stop: Callable[[History], bool]
    validation: Batch | Validation | None
    checkpoints: Checkpoints | None
    progress: bool | None


def _run(state: TrainState, data: Batch, stepping: Stepping, plan: _Plan) -> None:
    advance, mesh = stepping.start(state, data, plan.batch_size), state.ensemble.mesh
    with progress_bar(plan.epochs, "epoch", plan.progress, mesh=mesh, done=state.epoch) as bar:
        while _goes_on(state, plan):
            start = time.perf_counter() - state.seconds
            with state.change():
                _shuffle(state, len(data), plan, even=stepping.even)
            for rows in state.order.tensor_split(state.batches)[state.position :]:
                with state.change():
                    _advance(state, advance(mesh.part(rows)))
                    state.seconds = time.perf_counter() - start
                if plan.checkpoints is not None and plan.checkpoints.is_due(state):
                    _require_finite(state)
                    plan.checkpoints.save(state)
                if plan.deadline < math.inf and mesh.world.agreed(state.seconds >= plan.deadline):
                    break
            average_statistics(state.ensemble)
            with kept_randomness(data.inputs):
                results = _validate(state, plan.validation)
            with state.change():
                state.seconds = mesh.world.agreed(time.perf_counter() - start)
                _end_epoch(state, results)
            bar.update()
            bar.set_postfix(_shown(state.history.last))
    if plan.checkpoints is not None:
        plan.checkpoints.save(state)


def _goes_on(state: TrainState, plan: _Plan) -> bool:
    """Whether another epoch follows, as the first rank sees it: clocks differ."""
    used_up = state.epoch >= plan.epochs or state.seconds >= plan.deadline
    over = used_up or (len(state.history) and plan.stop(state.history))
    return not state.ensemble.mesh.world.agreed(bool(over))


def _shown(record: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{record[name]:.4g}" for name in ("loss", "data", "kl") if name in record}


def _shuffle(state: TrainState, num_points: int, plan: _Plan, *, even: bool) -> None:
    """A random order for this epoch, unless it has begun; in batches of even size, so that none has a point or two."""
    batches = num_points // plan.batch_size if even else math.ceil(num_points / plan.batch_size)
    used = batches * plan.batch_size if even else num_points
    if batches > plan.batches_per_epoch:
        batches, used = plan.batches_per_epoch, plan.batches_per_epoch * plan.batch_size
    if not len(state.order):
        order = torch.randperm(num_points, generator=state.generator, device=state.generator.device)
        state.order, state.batches = order[:used], batches
    elif (len(state.order), state.batches) != (used, batches):
        raise CheckpointError(
            f"the checkpoint lies within an epoch of {len(state.order)} points in {state.batches} batches, but this "
            f"run has {used} in {batches}; go on with the same data and batch_size until the epoch ends"
        )


def _advance(state: TrainState, loss: Loss) -> None:
    state.position += 1
    for name, value in {"loss": loss.total, **loss.terms}.items():
        # summed where they are: reading a number at every step would make a GPU wait
        state.sums[name] = state.sums.get(name, 0.0) + value.detach().double()


def _require_finite(state: TrainState) -> None:
    bad = [name for name, value in state.sums.items() if not math.isfinite(value)]
    if bad:
        raise NonFiniteLossError(f"the loss is not finite in epoch {state.epoch + 1}, in {', '.join(bad)}")


def _end_epoch(state: TrainState, results: Mapping[str, float]) -> None:
    _require_finite(state)
    means = {name: float(value) / state.position for name, value in state.sums.items()}
    state.epoch, state.order, state.position, state.sums = state.epoch + 1, no_order(), 0, {}
    rates = {"learning_rate": float(state.optimizers[0].param_groups[0]["lr"])}
    record = {"epoch": state.epoch, "step": state.count, "seconds": state.seconds, **means, **rates}
    state.history.records.append({**record, **results})
    for scheduler in state.schedulers:
        scheduler.step()


def _validate(state: TrainState, validation: Batch | Validation | None) -> dict[str, float]:
    if validation is None:
        return {}
    state.ensemble.eval()
    with torch.no_grad():
        if isinstance(validation, Batch):
            loss = state.objective(state.ensemble, validation, generator=state.generator.clone_state())
            results: Mapping[str, Any] = {"loss": loss.total, **loss.terms}
        else:
            results = validation(state.ensemble)
    state.ensemble.train()
    return {f"validation/{name}": float(value) for name, value in results.items()}


def _check_sizes(epochs: int, batch_size: int | None, batches_per_epoch: int | None) -> None:
    if epochs < 0:
        raise ValueError(f"epochs must not be negative, but it is {epochs}")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, but it is {batch_size}; None takes all data at once")
    if batches_per_epoch is not None and batches_per_epoch < 1:
        raise ValueError(
            f"batches_per_epoch must be at least 1, but it is {batches_per_epoch}; None makes an epoch a pass over "
            f"the data"
        )


def _check(
    ensemble: Ensemble,
    data: Batch,
    objective: Objective,
    batch_size: int | None,
    transform: Callable[[Tensor], Tensor],
) -> None:
    _check_parts(ensemble.mesh.replicas.size, len(data), batch_size or len(data))
    check_inputs(data.inputs)
    was_training = ensemble.training
    with torch.no_grad():
        num_outputs = ensemble.eval().peek(transform(data.inputs[:2])).shape[2]
    ensemble.train(was_training)
    objective.likelihood.check(data.targets, num_outputs)
    objective.likelihood.check_values(data.targets, num_outputs)


def _check_parts(replicas: int, num_points: int, batch_size: int) -> None:
    smallest = num_points // math.ceil(num_points / batch_size) if num_points else 0
    if replicas > max(smallest, 1):
        raise ValueError(
            f"every replica must have a point of each batch, but there are {replicas} replicas and batches of "
            f"{smallest} points; take larger batches, or fewer replicas"
        )


def _choose_way(ensemble: Ensemble, inputs: Tensor) -> None:
    """By measurement where it pays: some machines run convolutions faster one member at a time.

    Fully connected members are always fastest together, so that their seeded runs repeat to the bit without a word.
    """
    if any(isinstance(module, _ConvNd) for module in ensemble.modules()):
        _log.info("%s", ensemble.train().choose_execution(inputs))


def _optimizers(
    optimizer: Optimizer | Sequence[Optimizer] | None, ensemble: Ensemble, objective: Objective
) -> list[Optimizer]:
    if optimizer is not None:
        _warn_of_untrained(objective, _as_list(optimizer))
        return _as_list(optimizer)
    own = objective.parameters() if isinstance(objective, torch.nn.Module) else iter(())
    trained: list[Tensor] = [p for p in (*ensemble.parameters(), *own) if p.requires_grad]
    return [torch.optim.Adam(trained, lr=1e-3)]


def _warn_of_untrained(objective: Objective, optimizers: Sequence[Optimizer]) -> None:
    """Someone who passes the members' weights alone has probably forgotten what the likelihood is to learn."""
    if not isinstance(objective.likelihood, torch.nn.Module):
        return
    held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    named = objective.likelihood.named_parameters()
    forgotten = [name for name, p in named if p.requires_grad and id(p) not in held]
    if forgotten:
        warnings.warn(
            f"the likelihood is to learn {', '.join(forgotten)}, but no optimizer has it, so that it stays as it is; "
            f"pass optimizer=[yours, torch.optim.Adam(objective.likelihood.parameters(), lr=1e-3)], or learned=False",
            stacklevel=4,
        )


def _as_list(one_or_many: Any) -> list[Any]:
    return list(one_or_many) if isinstance(one_or_many, Sequence) else [one_or_many]


def _seeded_by_chance(device: torch.device, mesh: Mesh) -> torch.Generator:
    generator = torch.Generator(device)
    return generator.manual_seed(mesh.world.agreed(generator.seed()))


def _settings(state: TrainState) -> dict[str, Any]:
    """What must be the same on all ranks before the first step."""
    names = ("objective", "optimizers", "schedulers", "generator")
    return {name: getattr(state, name) for name in names}


def _last_good(checkpoints: Checkpoints | None) -> str:
    newest = None if checkpoints is None else checkpoints.newest()
    return f"the last good checkpoint is {newest}" if newest else "no checkpoint was kept"
