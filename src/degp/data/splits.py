"""Parts of a data set: folds to test on, and rows that make a data set of their own."""

import torch
from jaxtyping import Int64
from torch import Tensor

from degp.typing import Batch


def kfold(
    num_rows: int, folds: int = 5, *, seed: int
) -> list[tuple[Int64[Tensor, "num_train"], Int64[Tensor, "num_test"]]]:
    """(rows to train on, rows to test on) for each fold: all rows permuted once, then cut into contiguous folds.

    Every row is tested on once; where num_rows is no multiple of folds, the first folds have one row more.

        for train, test in kfold(len(data), seed=0):
            fit(ensemble, subset(data, train), ...)
    """
    if not 2 <= folds <= num_rows:
        raise ValueError(
            f"there must be at least 2 folds and a row for each, but {num_rows} rows are to make {folds} folds; "
            "choose another number of folds"
        )
    parts = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed)).tensor_split(folds)
    return [(torch.cat([*parts[:i], *parts[i + 1 :]]), parts[i]) for i in range(folds)]


def subset(data: Batch, rows: Tensor | slice) -> Batch:
    """The chosen rows as a data set of its own, with its own size as population; `data[rows]` keeps that of `data`."""
    return Batch(data.inputs[rows], data.targets[rows])
