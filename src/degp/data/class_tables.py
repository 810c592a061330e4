"""Tables with a class to tell, in the comma-separated form of the UCI repository: mushrooms and forest cover."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int16, Shaped

from degp.data.labelled import check_labels, check_shape, reading
from degp.data.registry import data_set, locate_files
from degp.typing import Batch

COVER_TYPES = 7
MUSHROOM_COLUMNS = 23  # the class, then 22 attributes


def mushroom() -> Batch:
    """All mushrooms: 22 attributes one-hot, (8124, 117) in float32, and whether each is poisonous (1) or edible (0).

    A column is one value of one attribute, attributes in the file's order and their values by letter; "?", where the
    root of the stalk is not known, is a value like the others.
    """
    record = data_set("mushroom")
    (path,) = locate_files("mushroom")
    batch = read_mushrooms(path)
    check_shape(tuple(batch.inputs.shape), (record.rows, *record.features), path)
    return batch


def covertype() -> Batch:
    """All patches of forest: 10 quantities and 44 indicators, (581012, 54) in float32, and their cover type from 0."""
    record = data_set("covertype")
    (path,) = locate_files("covertype")
    batch = read_cover_types(path)
    check_shape(tuple(batch.inputs.shape), (record.rows, *record.features), path)
    return batch


def read_mushrooms(path: Path) -> Batch:
    """A letter a column, the class first: e or p."""
    with reading(path):
        letters = np.array([line.split(",") for line in path.read_text().split()])
        check_shape(letters.shape[1:], (MUSHROOM_COLUMNS,), path)
    labels = np.select([letters[:, 0] == "e", letters[:, 0] == "p"], [0, 1], -1)
    check_labels(labels, 2, path)
    onehot = np.concatenate([_indicators(column) for column in letters[:, 1:].T], axis=1)
    return Batch(torch.from_numpy(onehot).float(), torch.from_numpy(labels.astype(np.int64)))


def read_cover_types(path: Path) -> Batch:
    """Whole numbers, 54 features and the cover type, counted from 1; packed by gzip where the name ends in .gz."""
    with reading(path):
        numbers: Int16[np.ndarray, "N K"] = np.loadtxt(path, np.int16, delimiter=",", ndmin=2)
        check_shape(numbers.shape[1:], (55,), path)
    labels = numbers[:, -1]
    check_labels(labels, COVER_TYPES, path, first=1)
    return Batch(torch.from_numpy(numbers[:, :-1].astype(np.float32)), torch.from_numpy(labels.astype(np.int64) - 1))


def _indicators(column: Shaped[np.ndarray, "N"]) -> Bool[np.ndarray, "N K"]:
    return column[:, None] == np.unique(column)
