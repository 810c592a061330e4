"""⑥ The loop: epochs of mini-batches with validation, history, progress and checkpoints."""

import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from degp.data import check_inputs, check_weights
from degp.ensemble import Ensemble
from degp.methods import Method, batch_loss
from degp.runtime.cpu import no_denormals
from degp.runtime.distributed import Mesh, require_same
from degp.runtime.execution import kept_randomness
from degp.runtime.optimizers import Adam
from degp.training.averaging import average_statistics
from degp.training.checkpoints import CheckpointError, Checkpoints
from degp.training.history import Ending, History
from degp.training.plan import EarlyStopping, Plan
from degp.training.progress import progress_bar
from degp.training.step import NonFiniteLossError, TrainState, no_order
from degp.typing import Batch, Loss

__all__ = ["fit"]

_log = logging.getLogger(__name__)

Validation = Callable[[Ensemble], Mapping[str, float]]


def fit(
    ensemble: Ensemble,
    data: Batch,
    method: Method,
    plan: Plan | None = None,
    *,
    epochs: int | None = None,
    batch_size: int | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    scheduler: LRScheduler | Sequence[LRScheduler] = (),
    validation: Batch | Validation | None = None,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> History:
    """Trains the ensemble, and the method's own parameters, in place.

    Args:
        ensemble: on the device where it is to be trained; the data must be there too. Where it is split over ranks
            (`Ensemble.split`), every rank calls `fit` with its own block and the same of everything else.
        data: the training set; whole on every rank, replicas take their parts of each batch.
        method: from `methods`, or anything with the form of `methods.Method`; give `predict` the same value.
        plan: how to train.
        epochs: instead of a plan, for `Plan(epochs, batch_size)`.
        batch_size: likewise.
        optimizer: one or several torch optimisers; Adam with learning rate 1e-3 by default.
        scheduler: torch schedulers, stepped after each epoch.
        validation: data on which the method's loss is measured after each epoch, or a function that returns scores.
        generator: for the order of the data and all draws of the method; by default seeded at random.
        progress: a progress bar; by default where the output is a terminal.
    """
    plan = _plan(plan, epochs, batch_size)
    undecided, mesh = ensemble.execution is None, ensemble.mesh
    generator = generator or _randomly_seeded(data.inputs.device, mesh)
    probe = generator.clone_state()

    def transform(inputs: Tensor) -> Tensor:
        return plan.stepping.transform(inputs, probe)

    optimizers = _optimizers(optimizer, ensemble, method)
    state = TrainState(ensemble, method, optimizers, _as_list(scheduler), generator)
    require_same(mesh.world, lambda: {"data": data, **_settings(state), **_plain_settings(plan)})
    check_inputs(data.inputs)
    if data.weights is not None:
        check_weights(data.weights)
    if undecided:
        _log.info("%s", ensemble.train().choose_execution(transform(data.inputs[: plan.batch_size or len(data)])))
    _check(ensemble, data, method, plan, transform)
    if plan.checkpoints is not None:
        plan.checkpoints.start(state, resume=plan.resume)
    ensemble.train()
    try:
        with no_denormals():
            _run(state, data, plan, validation, progress)
    except NonFiniteLossError as error:
        last = _last_good(plan.checkpoints)
        raise NonFiniteLossError(f"step {state.count + 1}: {error}; {last}; try a smaller learning rate") from None
    except KeyboardInterrupt:
        if plan.checkpoints is not None and state.whole and mesh.world.size == 1:  # other ranks may be at other steps
            plan.checkpoints.save(state)
        raise
    ensemble.eval()
    return state.history


def _run(
    state: TrainState, data: Batch, plan: Plan, validation: Batch | Validation | None, progress: bool | None
) -> None:
    batch_size = plan.batch_size or len(data)
    advance, mesh = plan.stepping.start(state, data, batch_size), state.ensemble.mesh
    before = saved = state.seconds  # an interrupted run's time does not count against this one's limit
    deadline = math.inf if plan.max_seconds is None else before + plan.max_seconds
    batches, _, passes = _epoch(len(data), batch_size, plan)
    state.history.planned = steps = plan.epochs * batches * passes
    with progress_bar(steps, "step", progress, mesh=mesh, done=state.count, max_seconds=plan.max_seconds) as bar:
        while (ending := _ending(state, plan, deadline)) is None:
            start = time.perf_counter() - state.seconds
            with state.change():
                _shuffle(state, len(data), batch_size, plan)
            for rows in state.order.tensor_split(state.batches)[state.position :]:
                with state.change():
                    _record(state, advance(mesh.part(rows)))
                    state.seconds = time.perf_counter() - start
                if plan.checkpoints is not None and plan.checkpoints.is_due(state, state.seconds - saved):
                    _require_finite(state)
                    plan.checkpoints.save(state)
                    saved = state.seconds
                bar.update()
                if deadline < math.inf and mesh.world.agreed(state.seconds >= deadline):
                    break
            average_statistics(state.ensemble)
            with kept_randomness(data.inputs):
                results = _validate(state, validation)
            with state.change():
                state.seconds = mesh.world.agreed(time.perf_counter() - start)
                _end_epoch(state, results)
                if plan.early_stopping is not None:
                    _update_best(state, plan.early_stopping)
            bar.set_postfix(_shown(state.history.last))
    state.history.ending = ending
    if plan.checkpoints is not None:
        plan.checkpoints.save(state)
    _restore_best(state)


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
    elif len(state.history) and _has_converged(state, plan.early_stopping):
        ending = Ending.CONVERGED
    elif len(state.history) and plan.stop(state.history):
        ending = Ending.STOPPED
    elif state.seconds >= deadline:
        ending = Ending.TIME
    return state.ensemble.mesh.world.agreed(ending)


def _has_converged(state: TrainState, rule: EarlyStopping | None) -> bool:
    return rule is not None and state.best.stale >= rule.patience


def _update_best(state: TrainState, rule: EarlyStopping) -> None:
    """Keeps the weights where the score is the best so far, and counts the epochs since it last made progress."""
    if rule.metric not in state.history.last:
        known = ", ".join(state.history.last)
        raise ValueError(f"early stopping needs the metric {rule.metric!r}, but an epoch has {known}; pass validation")
    value, best = float(state.ensemble.mesh.world.agreed(state.history.last[rule.metric])), state.best
    if value < best.value:
        best.value = value
        best.ensemble = _copies(state.ensemble)
        best.method = _copies(state.method)
    progressed = value < best.mark - rule.min_delta
    best.mark, best.stale = (value, 0) if progressed else (best.mark, best.stale + 1)


def _restore_best(state: TrainState) -> None:
    if state.best.ensemble:
        state.ensemble.load_state_dict(state.best.ensemble)
        if isinstance(state.method, nn.Module):
            state.method.load_state_dict(state.best.method)


def _copies(module: object) -> dict[str, Tensor]:
    if not isinstance(module, nn.Module):
        return {}
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _shown(record: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{record[name]:.4g}" for name in ("loss", "data", "kl") if name in record}


def _shuffle(state: TrainState, num_points: int, batch_size: int, plan: Plan) -> None:
    """A random order for this epoch, unless it has begun; in batches of even size, so that none has a point or two."""
    batches, used, passes = _epoch(num_points, batch_size, plan)
    if not len(state.order):
        draw = partial(torch.randperm, num_points, generator=state.generator, device=state.generator.device)
        state.order, state.batches = torch.cat([draw()[:used] for _ in range(passes)]), batches * passes
    elif (len(state.order), state.batches) != (used * passes, batches * passes):
        raise CheckpointError(
            f"the checkpoint lies within an epoch of {len(state.order)} points in {state.batches} batches, but this "
            f"run has {used * passes} in {batches * passes}; resume with the same data and batch_size until the epoch "
            f"ends"
        )


def _epoch(num_points: int, batch_size: int, plan: Plan) -> tuple[int, int, int]:
    """Batches and points of one pass, and the number of passes per epoch."""
    even = plan.stepping.even
    batches = num_points // batch_size if even else math.ceil(num_points / batch_size)
    used = batches * batch_size if even else num_points
    wanted = plan.batches_per_epoch or batches
    if batches > wanted:
        return wanted, wanted * batch_size, 1
    return batches, used, max(1, wanted // max(batches, 1))


def _record(state: TrainState, loss: Loss) -> None:
    state.count += 1
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
            loss = batch_loss(state.ensemble, validation, state.method, generator=state.generator.clone_state())
            results: Mapping[str, Any] = {"loss": loss.total, **loss.terms}
        else:
            results = validation(state.ensemble)
    state.ensemble.train()
    return {f"validation/{name}": float(value) for name, value in results.items()}


def _check(ensemble: Ensemble, data: Batch, method: Method, plan: Plan, transform: Callable[[Tensor], Tensor]) -> None:
    _check_parts(ensemble.mesh.replicas.size, len(data), plan.batch_size or len(data))
    was_training = ensemble.training
    with torch.no_grad():
        num_outputs = ensemble.eval().peek(transform(data.inputs[:2])).shape[2]
    ensemble.train(was_training)
    method.likelihood.check(data.targets, num_outputs)
    method.likelihood.check_values(data.targets, num_outputs)


def _check_parts(replicas: int, num_points: int, batch_size: int) -> None:
    smallest = num_points // math.ceil(num_points / batch_size) if num_points else 0
    if replicas > max(smallest, 1):
        raise ValueError(
            f"every replica must have a point of each batch, but there are {replicas} replicas and batches of "
            f"{smallest} points; take larger batches, or fewer replicas"
        )


def _optimizers(
    optimizer: Optimizer | Sequence[Optimizer] | None, ensemble: Ensemble, method: Method
) -> list[Optimizer]:
    if optimizer is not None:
        _check_held(ensemble, method, _as_list(optimizer))
        return _as_list(optimizer)
    own = method.parameters() if isinstance(method, nn.Module) else iter(())
    trained: list[Tensor] = [p for p in (*ensemble.parameters(), *own) if p.requires_grad]
    return [Adam(trained, lr=1e-3)]


def _check_held(ensemble: Ensemble, method: Method, optimizers: Sequence[Optimizer]) -> None:
    """Raises where no optimiser holds a weight of the ensemble; warns where one of the likelihood is left out."""
    held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    trained = [p for p in ensemble.parameters() if p.requires_grad]
    if trained and not any(id(p) in held for p in trained):
        raise ValueError(
            "the optimizer must hold the ensemble's parameters, but it holds none, and nothing would be learned: an "
            "ensemble copies its members; pass ensemble.parameters() to the optimizer"
        )
    if not isinstance(method.likelihood, nn.Module):
        return
    named = method.likelihood.named_parameters()
    forgotten = [name for name, p in named if p.requires_grad and id(p) not in held]
    if forgotten:
        warnings.warn(
            f"the likelihood is to learn {', '.join(forgotten)}, but no optimizer holds it, and it will not change; "
            f"pass optimizer=[yours, torch.optim.Adam(method.likelihood.parameters(), lr=1e-3)], or learned=False",
            stacklevel=4,
        )


def _as_list(one_or_many: Any) -> list[Any]:
    return list(one_or_many) if isinstance(one_or_many, Sequence) else [one_or_many]


def _randomly_seeded(device: torch.device, mesh: Mesh) -> torch.Generator:
    generator = torch.Generator(device)
    return generator.manual_seed(mesh.world.agreed(generator.seed()))


def _settings(state: TrainState) -> dict[str, Any]:
    """What must be the same on all ranks before the first step."""
    names = ("method", "optimizers", "schedulers", "generator")
    return {name: getattr(state, name) for name in names}


def _plain_settings(plan: Plan) -> dict[str, Any]:
    """The plan's settings that ranks can compare; `stop` is a function, and the first rank's decides."""
    names = ("epochs", "batch_size", "batches_per_epoch", "early_stopping", "max_seconds", "stepping", "checkpoints")
    return {name: getattr(plan, name) for name in names}


def _last_good(checkpoints: Checkpoints | None) -> str:
    newest = None if checkpoints is None else checkpoints.newest()
    return f"the last good checkpoint is {newest}" if newest else "no checkpoint was saved"
