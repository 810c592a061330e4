"""Where the steps of an epoch come from: rows of a data set that can be indexed, or a stream of batches."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from degp.data.batches import DatasetRows, as_points, population_of
from degp.ensemble import Ensemble
from degp.training.checkpoints import CheckpointError
from degp.training.plan import Plan
from degp.training.step import TrainState
from degp.training.stepping import Eager
from degp.typing import Batch, Loss

__all__ = ["Rows", "Stream", "source_of"]

Step = Callable[[], Loss]


def source_of(data: Any, plan: Plan, ensemble: Ensemble, population: int | None) -> "Rows | Stream":
    """A `Batch` or a map-style Dataset in rows; a DataLoader or another iterable of batches as a stream."""
    if isinstance(data, Batch):
        return Rows(data if population is None else replace(data, population=population), plan, data.device)
    count = population or population_of(data)
    device = next((parameter.device for parameter in ensemble.parameters()), torch.device("cpu"))
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return Rows(DatasetRows(data, count, device), plan, device)
    if plan.batch_size is not None:
        raise ValueError(
            f"a {type(data).__name__} has batches already, but batch_size is {plan.batch_size}; leave it out"
        )
    return Stream(data, plan, count, device)


@dataclass(frozen=True)
class Rows:
    """Data that can be indexed: each epoch has a random order, in batches of even size."""

    data: Batch | DatasetRows
    plan: Plan
    device: torch.device

    @property
    def batch_size(self) -> int:
        """The largest."""
        return self.plan.batch_size or len(self.data)

    def example(self) -> Batch:
        """A first batch, for checks and measurements; draws no random numbers of the run."""
        return self.data[: self.batch_size]

    def start(self, state: TrainState) -> Callable[[], Iterator[Step]]:
        """A function that begins an epoch, or resumes it, and gives the steps that remain of it."""
        advance = self.plan.stepping.start(state, self.data, self.batch_size)

        def epoch() -> Iterator[Step]:
            self._shuffle(state)
            remaining = state.order.tensor_split(state.batches)[state.position :]
            return (partial(advance, state.ensemble.mesh.part(rows)) for rows in remaining)

        return epoch

    def _shuffle(self, state: TrainState) -> None:
        """A random order, unless the epoch has begun; in batches of even size, so that none has a point or two."""
        num_points, batch_size, even = len(self.data), self.batch_size, self.plan.stepping.even
        most = self.plan.batches_per_epoch or num_points
        batches = num_points // batch_size if even else math.ceil(num_points / batch_size)
        used = batches * batch_size if even else num_points
        if batches > most:
            batches, used = most, most * batch_size
        if not len(state.order):
            order = torch.randperm(num_points, generator=state.generator, device=state.generator.device)
            state.order, state.batches = order[:used], batches
        elif (len(state.order), state.batches) != (used, batches):
            raise CheckpointError(
                f"the checkpoint lies within an epoch of {len(state.order)} points in {state.batches} batches, but "
                f"this run has {used} in {batches}; resume with the same data and batch_size until the epoch ends"
            )


@dataclass(frozen=True)
class Stream:
    """Batches in the order of a loader, which is seeded by the run, unless the loader has a generator of its own.

    Several replicas read the same batches and take their parts. A run that resumes within an epoch reads the batches
    that are done again, and skips them.
    """

    batches: Iterable[Any]
    plan: Plan
    population: int
    device: torch.device

    def example(self) -> Batch:
        """As `Rows.example`."""
        return next(self._read(0), None) or _nothing()

    def start(self, state: TrainState) -> Callable[[], Iterator[Step]]:
        """As `Rows.start`."""
        stepping = self.plan.stepping
        if not isinstance(stepping, Eager):
            warnings.warn("steps run eagerly, because only data that stay on the GPU can be captured", stacklevel=5)
            stepping = Eager(stepping.transform, getattr(stepping, "precision", None))

        def part(batch: Batch) -> Batch:
            rows = torch.arange(len(batch))
            own = state.ensemble.mesh.part(rows)
            return batch if len(own) == len(batch) else batch[own.to(self.device)]

        def epoch() -> Iterator[Step]:
            if not len(state.order):  # the epoch's seed, saved in the place of its order
                state.order = _seed(state.generator)
            batches = self._read(int(state.order))
            remaining = islice(batches, state.position, self.plan.batches_per_epoch)
            return (partial(stepping.step, state, part(batch)) for batch in remaining)

        return epoch

    def _read(self, seed: int) -> Iterator[Batch]:
        with torch.random.fork_rng(devices=[]):  # samplers draw their seed with the first batch
            torch.manual_seed(seed)
            items = iter(self.batches)
            first = next(items, None)
        if first is not None:
            yield as_points(first, self.population).to(device=self.device)
        for item in items:
            yield as_points(item, self.population).to(device=self.device)


def _seed(generator: torch.Generator) -> Tensor:
    return torch.randint(2**62, (1,), generator=generator, device=generator.device)


def _nothing() -> Batch:
    raise ValueError("there must be at least one batch of data, but the first pass gave none; is the iterator used up?")
