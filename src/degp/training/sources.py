"""Where the steps of an epoch come from: rows of a data set that can be indexed, or a stream of batches."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from degp.data.batches import DatasetRows, as_points, population_of
from degp.ensemble import Ensemble
from degp.training.checkpoints import CheckpointError
from degp.training.plan import Plan
from degp.training.step import TrainState, check_targets
from degp.training.stepping import Eager
from degp.typing import Batch, Loss

__all__ = ["Data", "Rows", "Stream", "source_of"]

Data = Batch | Dataset[Any] | Iterable[Any]
Step = Callable[[], Loss]


def source_of(data: Data, plan: Plan, ensemble: Ensemble, population: int | None) -> "Rows | Stream":
    """A `Batch` or a map-style Dataset in rows; a DataLoader or another iterable of batches as a stream."""
    if isinstance(data, Batch):
        own = data if population is None else replace(data, population=population, stated=True)
        return Rows(own, plan, data.device)
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

    @property
    def steps(self) -> int:
        """Per epoch."""
        batches, _, passes = self._pass()
        return batches * passes

    def example(self) -> Batch:
        """A first batch, for checks and measurements; draws no random numbers of the run."""
        return self.data[: self.batch_size]

    def start(self, state: TrainState) -> Callable[[], Iterator[Step]]:
        """A function that begins an epoch, or resumes it, and gives the steps that remain of it."""
        advance = self.plan.stepping.start(state, self.data, self.batch_size)

        def epoch() -> Iterator[Step]:
            self._shuffle(state)
            remaining = self._batches(state.order)[state.position :]
            return (partial(advance, state.ensemble.mesh.part(rows)) for rows in remaining)

        return epoch

    def _shuffle(self, state: TrainState) -> None:
        """A random order, unless the epoch has begun; in batches of even size, so that none has a point or two."""
        batches, used, passes = self._pass()
        if not len(state.order):
            draw = partial(torch.randperm, len(self.data), generator=state.generator, device=state.generator.device)
            state.order, state.batches = torch.cat([draw()[:used] for _ in range(passes)]), batches * passes
        elif (len(state.order), state.batches) != (used * passes, batches * passes):
            raise CheckpointError(
                f"the checkpoint lies within an epoch of {len(state.order)} points in {state.batches} batches, but "
                f"this run has {used * passes} in {batches * passes}; resume with the same data and batch_size until "
                f"the epoch ends"
            )

    def _batches(self, order: Int[Tensor, "N"]) -> list[Int[Tensor, "B"]]:
        batches, _, passes = self._pass()
        return [rows for own in order.tensor_split(passes) for rows in own.tensor_split(batches)]  # no row twice in one

    def _pass(self) -> tuple[int, int, int]:
        """Batches and points of one pass, and the number of passes per epoch."""
        num_points, batch_size, even = len(self.data), self.batch_size, self.plan.stepping.even
        batches = num_points // batch_size if even else math.ceil(num_points / batch_size)
        used = batches * batch_size if even else num_points
        wanted = self.plan.batches_per_epoch or batches
        if batches > wanted:
            return wanted, wanted * batch_size, 1
        return batches, used, _passes(wanted, batches)


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

    @property
    def steps(self) -> int | None:
        """Per epoch; None where the stream does not have its length."""
        batches, wanted = _length(self.batches), self.plan.batches_per_epoch
        if batches is None or wanted is None:
            return batches
        return min(wanted, batches * _passes(wanted, batches))

    def example(self) -> Batch:
        """As `Rows.example`."""
        return next(self._read(0, lambda batch: None), None) or _nothing()

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
            batches = self._read_all(int(state.order), partial(check_targets, state))
            remaining = _without_first(state.position, islice(batches, self.plan.batches_per_epoch))
            return (partial(stepping.step, state, part(batch)) for batch in remaining)

        return epoch

    def _read_all(self, seed: int, check: Callable[[Batch], None]) -> Iterator[Batch]:
        """The passes of an epoch, each in an order of its own."""
        passes = _passes(self.plan.batches_per_epoch or 1, _length(self.batches))
        return chain.from_iterable(self._read(seed + index, check) for index in range(passes))

    def _read(self, seed: int, check: Callable[[Batch], None]) -> Iterator[Batch]:
        with torch.random.fork_rng(devices=[]):  # samplers draw their seed with the first batch
            torch.manual_seed(seed)
            items = iter(self.batches)
            first = list(islice(items, 1))
        for item in chain(first, items):
            batch = as_points(item, self.population)
            check(batch)  # before it goes to a GPU, which would have to wait for the answer
            yield batch.to(device=self.device)


def _without_first(count: int, batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches that remain; those skipped draw nothing from torch's random state, which is as they once left it."""
    with torch.random.fork_rng(devices=[]):
        for _ in islice(batches, count):
            pass
    return batches


def _passes(wanted: int, batches: int | None) -> int:
    """Passes over the data that make about `wanted` batches; one where they have more, or an unknown number."""
    return max(1, wanted // batches) if batches else 1


def _length(batches: Iterable[Any]) -> int | None:
    try:
        return len(batches)  # type: ignore[arg-type]
    except TypeError:  # a generator, or a loader of one
        return None


def _seed(generator: torch.Generator) -> Tensor:
    return torch.randint(2**62, (1,), generator=generator, device=generator.device)


def _nothing() -> Batch:
    raise ValueError("there must be at least one batch of data, but the first pass gave none; is the iterator used up?")
