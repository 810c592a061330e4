"""UCI regression tables: rows of numbers, and two lists of the columns that hold the features and the target."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64, Int64

from degp.typing import Batch
from experiments.data import records
from experiments.data.registry import data_set, locate
from experiments.data.sources import DataSetError

__all__ = ["UCI_NAMES", "read_table", "uci"]

UCI_NAMES = tuple(record.name for record in records.UCI)


def uci(name: str) -> Batch:
    """All rows of a UCI regression set, in original units and order: inputs (N, D), targets (N, 1), in float32."""
    record = data_set(name)
    if name not in UCI_NAMES:
        raise DataSetError(f"a UCI set must be one of {', '.join(UCI_NAMES)}, but it is {name!r}; use its own reader")
    folder = locate(name)
    batch = read_table(folder)
    if batch.inputs.shape != (record.rows, *record.features):
        raise DataSetError(
            f"{name!r} must have {record.rows} rows of {record.features[0]} features, but {folder} has "
            f"{len(batch)} rows of {batch.inputs.shape[1]}; replace the files there"
        )
    return batch


def read_table(folder: Path) -> Batch:
    """The table of `data.txt`, with the columns of `index_features.txt` and `index_target.txt`, in float32."""
    table = _numbers(folder / "data.txt")
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        raise DataSetError(
            f"values must be finite, but {folder / 'data.txt'} has {len(bad)} that are not, "
            f"the first in row {bad[0, 0]}, column {bad[0, 1]}, counted from 0; drop these rows or fill them in"
        )
    features = _columns(folder / "index_features.txt", table.shape[1])
    target = _columns(folder / "index_target.txt", table.shape[1])
    _check_columns(features, target, folder)
    inputs, targets = (torch.from_numpy(table[:, columns]).float() for columns in (features, target))
    return Batch(inputs, targets)


def _numbers(path: Path) -> Float64[np.ndarray, "N K"]:
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        return np.loadtxt(lines, ndmin=2) if lines else np.empty((0, 0))
    except ValueError as error:
        raise DataSetError(
            f"every row must have the same number of values, separated by blanks, but in {path} {error}; "
            "the file may be truncated: copy it again"
        ) from error


def _columns(path: Path, num_columns: int) -> Int64[np.ndarray, "K"]:
    columns = _numbers(path).flatten()
    if not len(columns) or not np.isin(columns, np.arange(num_columns)).all():
        raise DataSetError(
            f"{path} must list columns of data.txt, integers from 0 to {num_columns - 1}, "
            f"but it lists {columns.tolist()}; is one of the two files truncated?"
        )
    return columns.astype(np.int64)


def _check_columns(features: Int64[np.ndarray, "D"], target: Int64[np.ndarray, "C"], folder: Path) -> None:
    if len(target) != 1 or len(np.unique(features)) != len(features) or np.isin(target, features).any():
        raise DataSetError(
            f"there must be one target column and distinct features, but {folder} has features "
            f"{features.tolist()} and target {target.tolist()}; correct index_features.txt or index_target.txt"
        )
