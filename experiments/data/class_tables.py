"""Classification tables in the comma-separated format of the UCI repository: mushrooms and forest cover."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int16, Shaped

from degp.typing import Batch
from experiments.data.parsing import check_labels, check_shape, parsing
from experiments.data.registry import data_set, locate_files

__all__ = ["covertype", "mushroom", "read_cover_types", "read_mushrooms"]

COVER_TYPES = 7
COVER_COLUMNS = 55  # 54 features, then the cover type
MUSHROOM_COLUMNS = 23  # the class, then 22 attributes


def mushroom() -> Batch:
    """All mushrooms: 22 attributes one-hot, (8124, 117) in float32, and whether each is poisonous (1) or edible (0).

    A column is one value of one attribute; attributes are in the order of the file, values in alphabetical order. "?",
    for an unknown stalk root, is a value like the others.
    """
    return _read("mushroom", read_mushrooms)


def covertype() -> Batch:
    """All patches of forest: 10 quantities and 44 indicators, (581012, 54) in float32, and their cover type from 0."""
    return _read("covertype", read_cover_types)


def read_mushrooms(path: Path) -> Batch:
    """One letter per column, the class first: e or p."""
    with parsing(path):
        letters = np.array([line.split(",") for line in path.read_text().split()])
        check_shape(letters.shape[1:], (MUSHROOM_COLUMNS,), path)
    labels = np.select([letters[:, 0] == "e", letters[:, 0] == "p"], [0, 1], -1)
    check_labels(labels, 2, path)
    onehot = np.concatenate([_indicators(column) for column in letters[:, 1:].T], axis=1)
    return Batch(torch.from_numpy(onehot).float(), torch.from_numpy(labels.astype(np.int64)))


def read_cover_types(path: Path) -> Batch:
    """Integers, 54 features and the cover type, counted from 1; compressed by gzip if the name ends in .gz."""
    with parsing(path):
        numbers: Int16[np.ndarray, "N K"] = np.loadtxt(path, np.int16, delimiter=",", ndmin=2)
        check_shape(numbers.shape[1:], (COVER_COLUMNS,), path)
    labels = numbers[:, -1]
    check_labels(labels, COVER_TYPES, path, first=1)
    return Batch(torch.from_numpy(numbers[:, :-1].astype(np.float32)), torch.from_numpy(labels.astype(np.int64) - 1))


def _read(name: str, read: Callable[[Path], Batch]) -> Batch:
    record = data_set(name)
    (path,) = locate_files(name)
    batch = read(path)
    check_shape(tuple(batch.inputs.shape), (record.rows, *record.features), path)
    return batch


def _indicators(column: Shaped[np.ndarray, "N"]) -> Bool[np.ndarray, "N K"]:
    return column[:, None] == np.unique(column)
