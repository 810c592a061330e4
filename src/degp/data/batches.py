"""Batches from what people train networks on: a DataLoader, a Dataset, or any iterable of batches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from degp.typing import Batch

__all__ = ["DatasetRows", "as_points", "batches_of", "count_of", "population_of"]


def as_points(item: Any, population: int = 0) -> Batch:
    """One item of a loader as a batch: a `Batch`, a pair (inputs, targets), or a dictionary with "labels".

    Real targets (B,) become one column (B, 1); the other entries of a dictionary are the inputs.
    """
    if isinstance(item, Batch):
        return replace(item, population=population, stated=True) if population else item
    if isinstance(item, Mapping) and "labels" in item:
        inputs, targets = {name: value for name, value in item.items() if name != "labels"}, item["labels"]
    elif isinstance(item, (tuple, list)) and len(item) == 2:
        inputs, targets = item
    else:
        raise TypeError(
            f"a batch must be a pair (inputs, targets), a degp.Batch, or a dictionary with labels, but it is "
            f"{_described(item)}; give the DataLoader a collate_fn that returns a pair, or degp.Batch(inputs, targets, "
            f"weights=…), or pass whole arrays as degp.data.as_batch(inputs, targets)"
        )
    if isinstance(targets, Tensor) and targets.ndim == 0:
        raise ValueError(
            "a batch must have one row per point, but its target is a single number, as of a data set without batches; "
            "pass DataLoader(dataset, batch_size=128)"
        )
    if isinstance(targets, Tensor) and targets.ndim == 1 and targets.is_floating_point():
        targets = targets[:, None]
    return Batch(inputs, targets, population)


class DatasetRows:
    """A map-style data set whose rows are collated when they are asked for.

    Args:
        dataset: of pairs (input, target).
        population: N.
        device: where its batches go.
    """

    def __init__(self, dataset: Dataset[Any], population: int, device: torch.device) -> None:
        self.dataset, self.population, self.device = dataset, population, device

    def __len__(self) -> int:
        assert isinstance(self.dataset, Sized)
        return len(self.dataset)

    def __getitem__(self, rows: Int[Tensor, "B"] | slice) -> Batch:
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows.tolist()
        item = default_collate([self.dataset[row] for row in chosen])
        return as_points(item, self.population).to(device=self.device)


def batches_of(data: Any, *, batch_size: int = 512, device: torch.device | None = None) -> Iterator[Batch]:
    """The points of a `Batch`, a Dataset, a DataLoader or an iterable of batches, in its order."""
    if isinstance(data, Batch):
        for start in range(0, len(data), batch_size):
            yield data[start : start + batch_size].to(device=device)
        return
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size)
    for item in data:
        yield as_points(item).to(device=device)


def count_of(data: Any) -> int | None:
    """The number of points that are at hand, each counted once; None where it cannot be known."""
    if isinstance(data, Batch):
        return len(data)
    source = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(data, DataLoader) and (indices := _indices_of(data)) is not None:
        return len({int(index) for index in indices})
    if isinstance(data, (DataLoader, Dataset)) and isinstance(source, Sized):
        return len(source)
    return sum(len(as_points(item)) for item in data) if isinstance(data, Sequence) else None


def population_of(data: Any) -> int:
    """N, the number of points in a data set; ValueError where it cannot be known."""
    count = data.population if isinstance(data, Batch) else count_of(data)
    if count is not None:
        return count
    if not isinstance(data, Iterable):
        raise TypeError(
            f"data must be a degp.Batch, a DataLoader, a Dataset or an iterable of batches, but they are a "
            f"{type(data).__name__}; use degp.data.as_batch for arrays"
        )
    raise ValueError(
        f"the number of training points must be known, because it scales the prior against the data, but a "
        f"{type(data).__name__} does not have it; pass population=…"
    )


def _indices_of(loader: DataLoader[Any]) -> Iterable[Any] | None:
    """The rows that a loader draws, where its sampler lists them: a `SubsetRandomSampler`, or a list of indices."""
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    return sampler if isinstance(sampler, Sequence) else getattr(sampler, "indices", None)


def _described(item: Any) -> str:
    if isinstance(item, Mapping):
        return f"a {type(item).__name__} of {', '.join(map(str, item))}"
    return f"a {type(item).__name__}" + (f" of {len(item)}" if isinstance(item, (tuple, list)) else "")
