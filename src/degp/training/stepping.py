"""How `fit` makes its steps: one operation after the other, or all of a step as CUDA graphs."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from degp.training.capture import CapturedStep
from degp.training.step import TrainState, step
from degp.training.transform import Transform, as_they_are
from degp.typing import Batch, Loss

Advance = Callable[[Int[Tensor, "B"]], Loss]


@runtime_checkable
class Stepping(Protocol):
    """A way to make optimiser steps on rows of the training set."""

    @property
    def transform(self) -> Transform:
        """What is done to inputs before the members see them."""
        ...

    @property
    def even(self) -> bool:
        """Whether all batches must have the same size; what is left over sits an epoch out."""
        ...

    def start(self, state: TrainState, data: Batch, batch_size: int) -> Advance:
        """The step, from rows to the loss on them, once the state is as training begins with it."""
        ...


@dataclass(frozen=True)
class Eager:
    """One operation after the other; every loss is looked at before it is used.

    Args:
        transform: what is done to a batch's inputs first.
        precision: of the networks, such as torch.bfloat16; by default that of their weights.
    """

    transform: Transform = as_they_are
    precision: torch.dtype | None = None
    even: bool = False

    def start(self, state: TrainState, data: Batch, batch_size: int) -> Advance:
        device = data.inputs.device.type

        def advance(rows: Int[Tensor, "B"]) -> Loss:
            own = data if len(rows) == len(data) else data[rows.to(data.inputs.device)]
            draws = state.draws()
            batch = Batch(self.transform(own.inputs, draws), own.targets, own.population)
            with torch.autocast(device, self.precision, enabled=self.precision is not None):
                return step(state, batch, generator=draws)

        return advance


@dataclass(frozen=True)
class Captured:
    """Each step as a CUDA graph, DE-GP's prior as a second one (`CapturedStep`); an epoch's losses are read at its end.

    Where a step cannot be a graph, it is made by `Eager`, with a warning that says why.

    Args:
        transform: what is done to a batch's inputs first.
        precision: of the networks, such as torch.bfloat16; by default that of their weights.
    """

    transform: Transform = as_they_are
    precision: torch.dtype | None = None
    even: bool = True

    def start(self, state: TrainState, data: Batch, batch_size: int) -> Advance:
        ranks = state.ensemble.mesh.world.size
        if ranks > 1:
            raise ValueError(f"a captured step must be that of one rank, but there are {ranks}; pass stepping=Eager()")
        try:
            graph = self._graph(state, data, batch_size)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # what a graph cannot hold: values that are read, copies from the CPU
            reason = str(error.__context__ or error).strip().splitlines()[0]
            warnings.warn(f"steps are not one CUDA graph each and run slower, because: {reason}", stacklevel=4)
            return Eager(self.transform, self.precision).start(state, data, batch_size)

        def advance(rows: Int[Tensor, "B"]) -> Loss:
            torch.cuda.current_stream().wait_stream(graph.stream)
            graph.stream.wait_stream(torch.cuda.current_stream())
            graph(rows)
            torch.cuda.current_stream().wait_stream(graph.stream)
            state.count += 1
            return graph.loss

        return advance

    def _graph(self, state: TrainState, data: Batch, batch_size: int) -> CapturedStep:
        return CapturedStep(
            state.ensemble,
            data,
            state.objective,
            state.optimizers,
            batch_size,
            generator=state.generator,
            transform=self.transform,
            precision=self.precision,
        )
