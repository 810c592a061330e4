"""⑤ One optimiser step, and all the state that a run carries from step to step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from degp.ensemble import Ensemble
from degp.objectives import Objective
from degp.training.history import History
from degp.training.interrupts import held_interrupts
from degp.training.replicas import average_gradients, average_loss
from degp.typing import Batch, Loss


class NonFiniteLossError(FloatingPointError):
    """The loss was NaN or infinite; the weights are those before the step."""


def no_order() -> Int[Tensor, "0"]:
    """The order of an epoch that has not begun."""
    return torch.empty(0, dtype=torch.long)


@dataclass
class TrainState:
    """Everything that must be kept to go on exactly where a run stopped."""

    ensemble: Ensemble
    objective: Objective
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[LRScheduler]
    generator: torch.Generator
    count: int = 0  # steps done
    epoch: int = 0  # epochs done
    order: Int[Tensor, "N"] = field(default_factory=no_order)  # this epoch's rows; none before it has begun
    batches: int = 0  # of this epoch
    position: int = 0  # batches of this epoch done
    sums: dict[str, Any] = field(default_factory=dict)  # of this epoch's losses, where they were computed
    seconds: float = 0.0
    history: History = field(default_factory=History)
    whole: bool = True  # not in the middle of a change

    @contextmanager
    def change(self) -> Iterator[None]:
        """A block that is done in full or leaves the state marked as not whole; Ctrl-C waits for its end."""
        with held_interrupts():
            self.whole = False
            yield
            self.whole = True

    def draws(self) -> torch.Generator:
        """What the next step's random numbers come from; to be asked for once a step."""
        return self.ensemble.mesh.draws(self.generator, self.count)


def step(state: TrainState, batch: Batch, *, generator: torch.Generator | None = None) -> Loss:
    """One step of every optimiser on the batch's loss; with several replicas, on that of all their batches.

    Args:
        batch: of several replicas, this one's part.
        generator: `state.draws()`, where the batch has drawn from it already.
    """
    loss = state.objective(state.ensemble, batch, generator=generator or state.draws())
    told = average_loss(loss, state.ensemble, len(batch))
    bad = told.non_finite()
    if bad:
        raise NonFiniteLossError(f"the loss is not finite at step {state.count + 1}, in {', '.join(bad)}")
    for optimizer in state.optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss.total.backward()
    average_gradients(state.ensemble, state.objective, len(batch))
    for optimizer in state.optimizers:
        optimizer.step()
    state.count += 1
    return told
