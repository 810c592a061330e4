"""Parts of a data set: folds to test on, rows to choose on, and rows that make a data set of their own."""

import torch
from jaxtyping import Int64, Shaped
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


def hold_out_rows(data: Batch, fraction: float, *, generator: torch.Generator) -> tuple[Batch, Batch]:
    """(rows to train on, about so large a share to choose and calibrate on), by chance, neither of them empty.

    Rows with the same inputs stay together where more than half of all rows differ: one whose twin was trained on
    shows how well it is remembered, and makes the noise look smaller than it is. In a table of few different rows,
    such as one of yes and no, the same inputs are no copies, and each row is taken by itself.
    """
    N, device = len(data), data.inputs.device
    place = torch.randperm(N, generator=generator, device=generator.device).to(device)  # in a random order
    kind = _kinds(data.inputs, generator)
    if len(kind.unique()) > N / 2:
        place = place[kind]
    last = place.sort().values[min(max(round(fraction * N), 1), N - 1) - 1]
    held_out = place <= last
    if held_out.all():
        held_out = place < last
    return subset(data, ~held_out), subset(data, held_out)


def _kinds(inputs: Shaped[Tensor, "N D"], generator: torch.Generator) -> Int64[Tensor, "N"]:
    """A number below N for each row, the same for rows with the same inputs."""
    weights = torch.rand(inputs.shape[1], dtype=torch.float64, generator=generator, device=generator.device)
    return (inputs.double() * weights.to(inputs.device)).sum(1).unique(return_inverse=True)[1]


def subset(data: Batch, rows: Tensor | slice) -> Batch:
    """The chosen rows as a data set of its own, with its own size as population; `data[rows]` keeps that of `data`."""
    return Batch(data.inputs[rows], data.targets[rows])
