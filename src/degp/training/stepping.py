"""How `fit` executes its steps: eagerly, or as CUDA graphs."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from degp.data.batches import DatasetRows
from degp.measurement import Domain
from degp.methods import Method
from degp.training.graphs import CapturedStep
from degp.training.step import (
    TrainState,
    add_gradients,
    check_targets,
    clear_gradients,
    naming_non_finite,
    require_finite,
    update,
)
from degp.training.transform import Transform, identity
from degp.typing import Batch, Loss

__all__ = ["Advance", "Captured", "Eager", "Stepping", "Timed"]

Advance = Callable[[Int[Tensor, "B"]], Loss]


@runtime_checkable
class Stepping(Protocol):
    """Executes optimiser steps on rows of the training set.

    Example:
        >>> from degp.training import Plan, fit
        >>> history = fit(ensemble, data, method, Plan(epochs=2, batch_size=8, stepping=Eager(accumulate=2)))
    """

    @property
    def transform(self) -> Transform:
        """Applied to a batch's inputs before the members see them."""
        ...

    @property
    def even(self) -> bool:
        """Whether all batches must have the same size; the remainder is left out of an epoch."""
        ...

    def start(self, state: TrainState, data: Batch | DatasetRows, batch_size: int) -> Advance:
        """The step, from rows to the loss on them; called once, when the state is ready for training."""
        ...


@dataclass(frozen=True)
class Eager:
    """One operation after the other; every loss is checked before the weights change.

    Args:
        transform: applied to a batch's inputs first.
        precision: of the networks, such as torch.bfloat16; by default that of their weights.
        accumulate: parts into which each batch is split. They run one after the other, and a step follows the mean of
            their gradients, as with as many replicas: memory for one part.
    """

    transform: Transform = identity
    precision: torch.dtype | None = None
    even: bool = False
    accumulate: int = 1

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise ValueError(f"accumulate is a number of parts and must be at least 1, but it is {self.accumulate}")

    def start(self, state: TrainState, data: Batch | DatasetRows, batch_size: int) -> Advance:
        in_any_order = self.accumulate == 1 and _is_symmetric(state.method, len(data))

        def advance(rows: Int[Tensor, "B"]) -> Loss:
            if isinstance(data, Batch):
                whole = in_any_order and len(rows) == len(data)
                return self.step(state, data if whole else data[rows.to(data.device)])
            batch = data[rows]
            check_targets(state, batch)
            return self.step(state, batch)

        return advance

    def step(self, state: TrainState, batch: Batch) -> Loss:
        """One optimiser step on a batch."""
        draws = state.draws()
        clear_gradients(state)
        losses = [self._add(state, part, len(part) / len(batch), draws) for part in self._parts(batch)]
        update(state, len(batch))
        return losses[0] if len(losses) == 1 else _sum(losses)

    def _parts(self, batch: Batch) -> list[Batch]:
        if self.accumulate == 1:
            return [batch]
        rows = torch.arange(len(batch), device=batch.device).tensor_split(min(self.accumulate, len(batch)))
        return [batch[own] for own in rows]

    def _add(self, state: TrainState, own: Batch, share: float, draws: torch.Generator) -> Loss:
        batch = replace(own, inputs=self.transform(own.inputs, draws))
        with torch.autocast(batch.device.type, self.precision, enabled=self.precision is not None):
            with naming_non_finite("inputs", batch.inputs):
                prepared = state.method.prepare(batch.inputs, generator=draws)
            loss = add_gradients(state, batch, prepared, share=share, generator=draws, inspect=require_finite)
        return loss if share == 1 else Loss(share * loss.total, {name: share * v for name, v in loss.terms.items()})


def _is_symmetric(method: Method, batch_size: int) -> bool:
    """Whether the loss treats all points of a batch alike; a divergence on a part of them takes the last ones."""
    domain = getattr(method, "domain", None)
    return not isinstance(domain, Domain) or len(range(batch_size)[domain.rows(batch_size)]) in (0, batch_size)


def _sum(losses: Sequence[Loss]) -> Loss:
    terms = {name: torch.stack([loss.terms[name] for loss in losses]).sum() for name in losses[0].terms}
    return Loss(torch.stack([loss.total for loss in losses]).sum(), terms)


@dataclass(frozen=True)
class Captured:
    """Each step as a CUDA graph, and its preparation as a second one (`CapturedStep`).

    Losses are checked at the end of an epoch. A step that cannot be captured runs by `Eager`, with a warning that says
    why. Members may be distributed across ranks: the graph then holds the exchange of their outputs too.

    Args:
        transform: applied to a batch's inputs first.
        precision: of the networks, such as torch.bfloat16; by default that of their weights.
    """

    transform: Transform = identity
    precision: torch.dtype | None = None
    even: bool = True

    def start(self, state: TrainState, data: Batch | DatasetRows, batch_size: int) -> Advance:
        replicas = state.ensemble.mesh.replicas.size
        if replicas > 1:  # each would need a stream of random numbers of its own, step by step
            raise ValueError(f"a captured step needs a single replica, but there are {replicas}; pass stepping=Eager()")
        eager = Eager(self.transform, self.precision)
        if not isinstance(data, Batch) or not isinstance(data.inputs, Tensor):
            warnings.warn(
                "steps run eagerly, because only one tensor that stays on the GPU can be captured", stacklevel=5
            )
            return eager.start(state, data, batch_size)
        try:
            graph = CapturedStep(state, data, batch_size, transform=self.transform, precision=self.precision)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # a graph cannot hold reads of values and copies from the CPU
            reason = str(error.__context__ or error).strip().splitlines()[0]
            warnings.warn(f"steps run eagerly, and slower, because they cannot be captured: {reason}", stacklevel=4)
            return eager.start(state, data, batch_size)

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

    def start(self, state: TrainState, data: Batch | DatasetRows, batch_size: int) -> Advance:
        advance = self.stepping.start(state, data, batch_size)
        return lambda rows: self.call(lambda: advance(rows))
