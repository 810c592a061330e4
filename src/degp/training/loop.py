"""⑥ The loop: epochs of mini-batches with validation, history, progress and checkpoints."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from degp.data import check_inputs, check_weights
from degp.ensemble import Ensemble
from degp.ensemble.members import require_ensemble
from degp.ensemble.modes import evaluation, with_gradients
from degp.ensemble.outputs import naming_inputs
from degp.methods import Method, require_method
from degp.methods.contract import as_module
from degp.points import Inputs, take_points
from degp.runtime.cpu import no_denormals
from degp.runtime.distributed import Mesh, require_same
from degp.runtime.progress import progress_bar
from degp.training.averaging import average_statistics
from degp.training.checkpoints import Checkpoints
from degp.training.history import Ending, History, Record
from degp.training.optimizers import optimizers_for
from degp.training.plan import Plan
from degp.training.schedules import EachStep, after_epoch, require_own, split
from degp.training.sources import Data, Rows, Stream, source_of
from degp.training.step import NonFiniteLossError, TrainState, no_order
from degp.training.validation import Validation, validate
from degp.typing import Batch, Loss

__all__ = ["fit"]

_log = logging.getLogger(__name__)

Callback = Callable[[Record], None]


def fit(
    ensemble: Ensemble,
    data: Data,
    method: Method,
    plan: Plan | None = None,
    *,
    epochs: int | None = None,
    batch_size: int | None = None,
    population: int | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    scheduler: LRScheduler | EachStep | Sequence[LRScheduler | EachStep] = (),
    validation: Validation | None = None,
    callback: Callback | Sequence[Callback] = (),
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> History:
    """Trains the ensemble, and the method's own parameters, in place.

    Args:
        ensemble: on the device where it is to be trained; the data must be there too. Where it is split over ranks
            (`Ensemble.split`), every rank calls `fit` with its own block and the same of everything else.
        data: the training set as one `Batch`, a Dataset, a DataLoader, or an iterable of batches, each of them a pair
            (inputs, targets), a `Batch`, or a dictionary with "labels". Inputs may be tuples and dictionaries of
            tensors. The whole set on every rank; replicas take their parts of each batch.
        method: from `methods`, or anything with the form of `methods.Method`; give `predict` the same value.
        plan: how to train.
        epochs: instead of a plan, for `Plan(epochs, batch_size)`.
        batch_size: likewise; not for data that come in batches.
        population: N, the number of training points, where the data do not have it.
        optimizer: one or several torch optimisers; Adam with learning rate 1e-3 by default.
        scheduler: torch schedulers, stepped after each epoch, or after each step as `EachStep(scheduler)`.
            `ReduceLROnPlateau` sees the validation loss, or the training loss where there is none.
        validation: data on which the method's loss is measured after each epoch, or a function that returns scores.
        callback: functions that are called after each epoch with its record, a plain dictionary of numbers.
        generator: for the order of the data and all draws of the method; by default seeded at random.
        progress: a progress bar; by default where the output is a terminal.
    """
    require_ensemble(ensemble)
    require_method(method)
    plan = _plan(plan, epochs, batch_size)
    undecided, mesh = ensemble.execution is None, ensemble.mesh
    source = source_of(data, plan, ensemble, population)
    generator = generator or _randomly_seeded(source.device, mesh)
    probe = generator.clone_state()

    callbacks = _require_functions(_as_list(callback))
    by_epoch, by_step = split(_as_list(scheduler))
    optimizers = optimizers_for(_as_list(optimizer) if optimizer is not None else [], ensemble, method)
    require_own([*by_epoch, *by_step], optimizers)
    state = TrainState(ensemble, method, optimizers, by_epoch, generator, step_schedulers=by_step)
    state.max_norm = plan.max_norm
    require_same(mesh.world, lambda: {"data": data, **_settings(state, plan)})
    example = source.example()
    known = data if isinstance(data, Batch) else example
    check_inputs(known.inputs)
    if known.weights is not None:
        check_weights(known.weights)
    inputs = plan.stepping.transform(example.inputs, probe)
    with naming_inputs(ensemble, inputs), with_gradients():
        if undecided:
            _log.info("%s", ensemble.train().choose_execution(inputs))
        state.num_outputs = _check(ensemble, known, method, plan, inputs)
    if plan.checkpoints is not None:
        plan.checkpoints.start(state, resume=plan.resume)
    ensemble.train()
    try:
        with no_denormals(), with_gradients():
            _run(state, source, plan, validation, callbacks, progress)
    except NonFiniteLossError as error:
        last = _last_good(plan.checkpoints)
        raise NonFiniteLossError(f"step {state.count + 1}: {error}; {last}; {error.advice}") from None
    except KeyboardInterrupt:
        if plan.checkpoints is not None and state.whole and mesh.world.size == 1:  # other ranks may be at other steps
            plan.checkpoints.save(state)
        raise
    ensemble.eval()
    return state.history


def _run(
    state: TrainState,
    source: Rows | Stream,
    plan: Plan,
    validation: Validation | None,
    callbacks: Sequence[Callback],
    progress: bool | None,
) -> None:
    begin, mesh = source.start(state), state.ensemble.mesh
    before = saved = state.seconds  # an interrupted run's time does not count against this one's limit
    deadline = math.inf if plan.max_seconds is None else before + plan.max_seconds
    total = None if source.steps is None else plan.epochs * source.steps
    state.history.planned = total or 0
    with progress_bar(total, "step", progress, mesh=mesh, done=state.count, max_seconds=plan.max_seconds) as bar:
        while (ending := _ending(state, plan, deadline)) is None:
            start = time.perf_counter() - state.seconds
            with state.change():
                steps = begin()
            for step in steps:
                with state.change():
                    _record(state, step())
                    state.seconds = time.perf_counter() - start
                if plan.checkpoints is not None and plan.checkpoints.is_due(state, state.seconds - saved):
                    _require_finite(state)
                    plan.checkpoints.save(state)
                    saved = state.seconds
                bar.update()
                if deadline < math.inf and mesh.world.agreed(state.seconds >= deadline):
                    break
            _end_epoch(state, _validated(state, validation, source.device), plan, start)
            for callback in callbacks if mesh.is_first else ():
                callback(dict(state.history.last))
            bar.set_postfix(_shown(state.history.last))
    state.history.ending = ending
    if plan.checkpoints is not None:
        plan.checkpoints.save(state)
    state.best.restore(state.ensemble, as_module(state.method))


def _plan(plan: Plan | None, epochs: int | None, batch_size: int | None) -> Plan:
    if plan is None:
        if epochs is None:
            raise ValueError("fit must know how long to train, but got neither a plan nor epochs; pass epochs=…")
        return Plan(epochs, batch_size)
    if epochs is not None or batch_size is not None:
        raise ValueError("fit takes a plan, or epochs and batch_size, but got both; set them in the plan")
    return plan


def _ending(state: TrainState, plan: Plan, deadline: float) -> Ending | None:
    """Why training ends here; None if it continues. The first rank's clock and functions decide."""
    ending = None
    if state.epoch >= plan.epochs:
        ending = Ending.COMPLETE
    elif plan.early_stopping is not None and state.best.stale >= plan.early_stopping.patience:
        ending = Ending.CONVERGED
    elif len(state.history) and plan.stop(state.history):
        ending = Ending.STOPPED
    elif state.seconds >= deadline:
        ending = Ending.TIME
    return state.ensemble.mesh.world.agreed(ending)


def _shown(record: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{record[name]:.4g}" for name in ("loss", "data", "kl") if name in record}


def _record(state: TrainState, loss: Loss) -> None:
    state.count += 1
    state.position += 1
    for name, value in {"loss": loss.total, **loss.terms}.items():
        # summed where they are: reading a number at every step would make a GPU wait
        state.sums[name] = state.sums.get(name, 0.0) + value.detach().double()
    for scheduler in state.step_schedulers:
        scheduler.step()


def _require_steps(state: TrainState) -> None:
    if not state.position:
        raise ValueError(
            f"every epoch must have a batch, but the data gave none in epoch {state.epoch + 1}; a generator can be "
            f"read only once: pass a list or a DataLoader"
        )


def _require_finite(state: TrainState) -> None:
    bad = [name for name, value in state.sums.items() if not math.isfinite(value)]
    if bad:
        raise NonFiniteLossError(f"the loss is not finite in epoch {state.epoch + 1}, in {', '.join(bad)}")
    spoilt = [name for name, p in state.ensemble.named_parameters() if not bool(p.detach().isfinite().all())]
    if spoilt:
        raise NonFiniteLossError(f"weights are not finite in epoch {state.epoch + 1}, in {', '.join(spoilt)}")


def _validated(state: TrainState, validation: Validation | None, device: torch.device) -> dict[str, float]:
    """Validation results of finite weights."""
    _require_steps(state)
    average_statistics(state.ensemble)
    _require_finite(state)
    return validate(state, validation, device)


def _end_epoch(state: TrainState, results: Mapping[str, float], plan: Plan, start: float) -> None:
    with state.change():
        state.seconds = state.ensemble.mesh.world.agreed(time.perf_counter() - start)
        _add_record(state, results)
        if plan.early_stopping is not None:
            score = state.ensemble.mesh.world.agreed(plan.early_stopping.score(state.history.last))
            state.best.update(score, plan.early_stopping, state.ensemble, as_module(state.method))


def _add_record(state: TrainState, results: Mapping[str, float]) -> None:
    means = {name: float(value) / state.position for name, value in state.sums.items()}
    state.epoch, state.order, state.position, state.sums = state.epoch + 1, no_order(), 0, {}
    rates = {"learning_rate": float(state.optimizers[0].param_groups[0]["lr"])}
    record = {"epoch": state.epoch, "step": state.count, "seconds": state.seconds, **means, **rates}
    state.history.records.append({**record, **results})
    for scheduler in state.schedulers:
        after_epoch(scheduler, state.history.last)


def _check(ensemble: Ensemble, data: Batch, method: Method, plan: Plan, inputs: Inputs) -> int:
    """Raises where data and networks do not fit; the number of outputs."""
    _check_parts(ensemble.mesh.replicas.size, len(data), plan.batch_size or len(data))
    with torch.no_grad(), evaluation(ensemble):
        num_outputs = ensemble.peek(take_points(inputs, slice(2))).shape[2]
    method.likelihood.check(data.targets, num_outputs)
    method.likelihood.check_values(data.targets, num_outputs)
    return num_outputs


def _check_parts(replicas: int, num_points: int, batch_size: int) -> None:
    smallest = num_points // math.ceil(num_points / batch_size) if num_points else 0
    if replicas > max(smallest, 1):
        raise ValueError(
            f"every replica must have a point of each batch, but there are {replicas} replicas and batches of "
            f"{smallest} points; take larger batches, or fewer replicas"
        )


def _as_list(one_or_many: Any) -> list[Any]:
    return list(one_or_many) if isinstance(one_or_many, Sequence) else [one_or_many]


def _require_functions(callbacks: list[Any]) -> list[Callback]:
    other = next((each for each in callbacks if not callable(each)), None)
    if other is not None:
        raise TypeError(
            f"a callback must be a function of an epoch's record, a dictionary of numbers, but it is a "
            f"{type(other).__name__}; pass one such as print, or a list of them"
        )
    return callbacks


def _randomly_seeded(device: torch.device, mesh: Mesh) -> torch.Generator:
    generator = torch.Generator(device)
    return generator.manual_seed(mesh.world.agreed(generator.seed()))


def _settings(state: TrainState, plan: Plan) -> dict[str, Any]:
    """What must be the same on all ranks before the first step; `plan.stop` is the first rank's."""
    names = ("method", "optimizers", "all_schedulers", "generator")
    planned = {name: value for name, value in vars(plan).items() if name != "stop"}
    return {name: getattr(state, name) for name in names} | planned


def _last_good(checkpoints: Checkpoints | None) -> str:
    newest = None if checkpoints is None else checkpoints.newest()
    return f"the last good checkpoint is {newest}" if newest else "no checkpoint was saved"
