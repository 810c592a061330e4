"""How `fit` executes its steps: eagerly, or as CUDA graphs."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from degp.training.graphs import CapturedStep
from degp.training.step import TrainState, require_finite, train_step
from degp.training.transform import Transform, identity
from degp.typing import Batch, Loss

__all__ = ["Advance", "Captured", "Eager", "Stepping", "Timed"]

Advance = Callable[[Int[Tensor, "B"]], Loss]


@runtime_checkable
class Stepping(Protocol):
    """Executes optimiser steps on rows of the training set."""

    @property
    def transform(self) -> Transform:
        """Applied to a batch's inputs before the members see them."""
        ...

    @property
    def even(self) -> bool:
        """Whether all batches must have the same size; the remainder is left out of an epoch."""
        ...

    def start(self, state: TrainState, data: Batch, batch_size: int) -> Advance:
        """The step, from rows to the loss on them; called once, when the state is ready for training."""
        ...


@dataclass(frozen=True)
class Eager:
    """One operation after the other; every loss is checked before the weights change.

    Args:
        transform: applied to a batch's inputs first.
        precision: of the networks, such as torch.bfloat16; by default that of their weights.
    """

    transform: Transform = identity
    precision: torch.dtype | None = None
    even: bool = False

    def start(self, state: TrainState, data: Batch, batch_size: int) -> Advance:
        device = data.inputs.device.type

        def advance(rows: Int[Tensor, "B"]) -> Loss:
            own = data if len(rows) == len(data) else data[rows.to(data.inputs.device)]
            draws = state.draws()
            batch = replace(own, inputs=self.transform(own.inputs, draws))
            with torch.autocast(device, self.precision, enabled=self.precision is not None):
                prepared = state.method.prepare(batch.inputs, generator=draws)
                return train_step(state, batch, prepared, generator=draws, inspect=require_finite)

        return advance


@dataclass(frozen=True)
class Captured:
    """Each step as a CUDA graph, and its preparation as a second one (`CapturedStep`).

    Losses are checked at the end of an epoch. A step that cannot be captured runs by `Eager`, with a warning that says
    why.

    Args:
        transform: applied to a batch's inputs first.
        precision: of the networks, such as torch.bfloat16; by default that of their weights.
    """

    transform: Transform = identity
    precision: torch.dtype | None = None
    even: bool = True

    def start(self, state: TrainState, data: Batch, batch_size: int) -> Advance:
        ranks = state.ensemble.mesh.world.size
        if ranks > 1:
            raise ValueError(f"a captured step needs a single rank, but there are {ranks}; pass stepping=Eager()")
        try:
            graph = CapturedStep(state, data, batch_size, transform=self.transform, precision=self.precision)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # a graph cannot hold reads of values and copies from the CPU
            reason = str(error.__context__ or error).strip().splitlines()[0]
            warnings.warn(f"steps run eagerly, and slower, because they cannot be captured: {reason}", stacklevel=4)
            return Eager(self.transform, self.precision).start(state, data, batch_size)

        def advance(rows: Int[Tensor, "B"]) -> Loss:
            torch.cuda.current_stream().wait_stream(graph.stream)
            graph.stream.wait_stream(torch.cuda.current_stream())
            graph(rows)
            torch.cuda.current_stream().wait_stream(graph.stream)
            return graph.loss

        return advance


@dataclass(frozen=True)
class Timed:
    """The steps of another value, each called through a function, such as a `ThreadTrial`."""

    stepping: Stepping
    call: Callable[[Callable[[], Loss]], Loss]

    @property
    def transform(self) -> Transform:
        return self.stepping.transform

    @property
    def even(self) -> bool:
        return self.stepping.even

    def start(self, state: TrainState, data: Batch, batch_size: int) -> Advance:
        advance = self.stepping.start(state, data, batch_size)
        return lambda rows: self.call(lambda: advance(rows))
