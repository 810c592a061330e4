"""Splits of a data set: cross-validation folds, validation rows, and subsets."""

from functools import partial

import torch
from jaxtyping import Int64
from torch import Tensor

from degp.data.arrays import relative
from degp.points import Inputs, take_points, tensors_of
from degp.typing import Batch

__all__ = ["hold_out_rows", "kfold", "subset"]


def kfold(
    num_rows: int, folds: int = 5, *, seed: int
) -> list[tuple[Int64[Tensor, "num_train"], Int64[Tensor, "num_test"]]]:
    """(training rows, test rows) per fold: all rows permuted once, then cut into contiguous folds.

    Every row is in one test set; where num_rows is no multiple of folds, the first folds have one row more.

    Example:
        >>> [len(test) for train, test in kfold(10, folds=3, seed=0)]
        [4, 3, 3]
    """
    if not 2 <= folds <= num_rows:
        raise ValueError(
            f"there must be at least 2 folds and a row for each, but {num_rows} rows are to make {folds} folds; "
            "choose another number of folds"
        )
    parts = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed)).tensor_split(folds)
    return [(torch.cat([*parts[:i], *parts[i + 1 :]]), parts[i]) for i in range(folds)]


def hold_out_rows(data: Batch, fraction: float, *, generator: torch.Generator) -> tuple[Batch, Batch]:
    """(training rows, about this fraction as validation rows), split at random, neither of them empty.

    Rows with the same inputs stay together where more than half of all rows are distinct: a validation row with a
    duplicate in the training set measures memorisation, and noise is underestimated. In a table of few distinct rows,
    such as binary columns, equal inputs are no duplicates, and each row is assigned independently.

    Example:
        >>> train, validation = hold_out_rows(data, 0.25, generator=torch.Generator().manual_seed(0))
        >>> len(train), len(validation)
        (18, 6)
    """
    N, device = len(data), data.device
    if N < 2 or not 0 < fraction < 1:
        raise ValueError(
            f"rows can be held out where there are at least two, as a fraction between 0 and 1, but there are {N} and "
            f"the fraction is {fraction}; train and validate on the same rows, or choose another fraction"
        )
    place = torch.randperm(N, generator=generator, device=generator.device).to(device)  # in a random order
    group = _duplicate_groups(data.inputs, generator)
    if len(group.unique()) > N / 2:
        place = place[group]
    last = place.sort().values[min(max(round(fraction * N), 1), N - 1) - 1]
    held_out = place <= last
    if held_out.all():
        held_out = place < last
    return subset(data, ~held_out), subset(data, held_out)


def _duplicate_groups(inputs: Inputs, generator: torch.Generator) -> Int64[Tensor, "N"]:
    """The number of the first row with the same inputs, per row; independent of the features' units."""
    points = [tensor.reshape(len(tensor), -1).double() for tensor in tensors_of(inputs)]
    draw = partial(torch.rand, dtype=torch.float64, generator=generator, device=generator.device)
    sums = [(rows * draw(rows.shape[1]).to(rows.device)).sum(1) for rows in points]
    group = torch.stack(sums).sum(0).unique(return_inverse=True)[1]
    rows = torch.arange(len(group), device=group.device)
    return torch.zeros_like(rows).scatter_reduce(0, group, rows, "amin", include_self=False)[group]


def subset(data: Batch, rows: Tensor | slice) -> Batch:
    """The chosen rows as a data set of its own: their number is the population, and their weights have mean one.

    `data[rows]` keeps population and weights of `data`.

    Example:
        >>> part = subset(data, slice(6))
        >>> len(part), part.population, data[:6].population
        (6, 6, 24)
    """
    weights = None if data.weights is None else relative(data.weights[rows])
    return Batch(take_points(data.inputs, rows), data.targets[rows], weights=weights)
