"""⑤ One optimiser step, and the state that a run carries from step to step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from degp.ensemble import Ensemble
from degp.methods import Method, Prepared
from degp.points import Inputs, tensors_of
from degp.training.averaging import average_gradients, average_loss
from degp.training.clipping import clip_gradients
from degp.training.history import History
from degp.training.interrupts import held_interrupts
from degp.training.stopping import Best
from degp.typing import Batch, Loss

__all__ = [
    "NonFiniteLossError",
    "TrainState",
    "add_gradients",
    "check_targets",
    "clear_gradients",
    "train_step",
    "update",
]


class NonFiniteLossError(FloatingPointError):
    """The loss was NaN or infinite; the weights are those before the step.

    Example:
        >>> from degp.training import fit
        >>> optimizer = torch.optim.SGD(ensemble.parameters(), lr=1e30)
        >>> try:
        ...     history = fit(ensemble, data, method, epochs=9, optimizer=optimizer)
        ... except NonFiniteLossError as error:
        ...     print(str(error).split("; ")[-1])
        try a smaller learning rate
    """

    advice = "try a smaller learning rate"


class _NonFiniteDataError(NonFiniteLossError):
    advice = "drop these points, or fill in their values"


def no_order() -> Int[Tensor, "0"]:
    """The order of an epoch that has not begun."""
    return torch.empty(0, dtype=torch.long)


@dataclass
class TrainState:
    """Everything that must be saved to resume a run exactly.

    Example:
        >>> from degp.training import Checkpoints
        >>> state = TrainState(ensemble, method, [torch.optim.Adam(ensemble.parameters())], [], torch.Generator())
        >>> Checkpoints("run").save(state).name
        'step-00000000-epoch-000000'
    """

    ensemble: Ensemble
    method: Method
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[LRScheduler]
    generator: torch.Generator
    count: int = 0  # steps done
    epoch: int = 0  # epochs done
    order: Int[Tensor, "N"] = field(default_factory=no_order)  # this epoch's rows; none before it has begun
    batches: int = 0  # of this epoch
    position: int = 0  # batches of this epoch done
    sums: dict[str, Any] = field(default_factory=dict)  # of this epoch's losses, on the device that computed them
    seconds: float = 0.0
    best: Best = field(default_factory=Best)
    history: History = field(default_factory=History)
    step_schedulers: Sequence[LRScheduler] = ()  # those that count steps
    max_norm: float | None = None  # of each member's gradient
    num_outputs: int = 0  # of each network; 0 where no one has looked
    whole: bool = True  # not in the middle of a change

    @contextmanager
    def change(self) -> Iterator[None]:
        """A block that completes or leaves the state marked as not whole; Ctrl-C waits for its end."""
        with held_interrupts():
            self.whole = False
            yield
            self.whole = True

    @property
    def all_schedulers(self) -> list[LRScheduler]:
        """Those that count epochs, then those that count steps."""
        return [*self.schedulers, *self.step_schedulers]

    def draws(self) -> torch.Generator:
        """The source of the next step's random numbers; call once per step."""
        return self.ensemble.mesh.draws(self.generator, self.count)


def train_step(
    state: TrainState,
    batch: Batch,
    prepared: Prepared,
    *,
    generator: torch.Generator,
    inspect: Callable[[Loss], None],
) -> Loss:
    """One step of every optimiser on the batch's loss; with several replicas, on the mean over their batches.

    Args:
        batch: with several replicas, this rank's part.
        prepared: `method.prepare(batch.inputs)`.
        inspect: sees the loss before the weights change, and may raise.
    """
    clear_gradients(state)
    loss = add_gradients(state, batch, prepared, generator=generator, inspect=inspect)
    update(state, len(batch))
    return loss


def clear_gradients(state: TrainState) -> None:
    """Forgets the gradients of the last step."""
    for optimizer in state.optimizers:
        optimizer.zero_grad(set_to_none=True)


def add_gradients(
    state: TrainState,
    batch: Batch,
    prepared: Prepared,
    *,
    share: float = 1.0,
    generator: torch.Generator,
    inspect: Callable[[Loss], None],
) -> Loss:
    """The loss; its gradient, times `share`, is added to those that there are."""
    outputs = state.ensemble.joint_outputs(batch.inputs, prepared.measurement)
    with naming_non_finite("outputs", outputs):
        loss = state.method.loss(outputs, state.ensemble, batch, prepared, generator=generator)
    reduced = average_loss(loss, state.ensemble, len(batch))
    inspect(reduced)
    (share * loss.total).backward()
    return Loss(reduced.total.detach(), reduced.terms)


def update(state: TrainState, num_points: int) -> None:
    """One step of every optimiser, by the mean of the replicas' gradients."""
    average_gradients(state.ensemble, state.method, num_points)
    if state.max_norm is not None:
        clip_gradients(state.ensemble, state.max_norm)
    for optimizer in state.optimizers:
        optimizer.step()


def check_targets(state: TrainState, batch: Batch) -> None:
    """Raises where targets that have just been read do not fit the likelihood."""
    if state.num_outputs and batch.targets.device.type == "cpu":
        with naming_non_finite("targets", batch.targets):
            state.method.likelihood.check(batch.targets, state.num_outputs)
            state.method.likelihood.check_values(batch.targets, state.num_outputs)


@contextmanager
def naming_non_finite(name: str, values: Inputs) -> Iterator[None]:
    """Errors of a block as `NonFiniteLossError` where such values are the reason, whatever function met them first."""
    try:
        yield
    except (ValueError, ArithmeticError, RuntimeError) as error:
        if all(bool(tensor.detach().isfinite().all()) for tensor in tensors_of(values)):
            raise
        kind = NonFiniteLossError if name == "outputs" else _NonFiniteDataError
        raise kind(f"the {name} are not finite") from error


def require_finite(loss: Loss) -> None:
    """Raises `NonFiniteLossError` where a term is NaN or infinite; reads one value from the device."""
    bad = loss.non_finite()
    if bad:
        raise NonFiniteLossError(f"the loss is not finite in {', '.join(bad)}")


def unchecked(loss: Loss) -> None:
    """No check: a CUDA graph cannot read values, and the loop checks the epoch's sums."""
