"""SVHN: digits of house numbers, cropped from colour photographs, in MATLAB's format."""

from pathlib import Path

from degp.typing import Batch
from experiments.data.matlab import read_arrays
from experiments.data.parsing import check_labels, image_batch
from experiments.data.registry import data_set, locate_files

__all__ = ["read_mat", "svhn"]


def svhn(split: str) -> Batch:
    """Digits of house numbers: images (N, 3, 32, 32) in uint8, labels (N,) in int64.

    73,257 of "train" and 26,032 of "test". A local copy may be rebuilt, with other bytes than the original.
    """
    (path,) = locate_files("svhn", split)
    return read_mat(path, data_set("svhn").splits[split])


def read_mat(path: Path, rows: int) -> Batch:
    """Images `X` (32, 32, 3, N) and labels `y` (N, 1), where 10 is the digit 0, both stored as bytes."""
    arrays = read_arrays(path, {"X": (32, 32, 3, rows), "y": (rows, 1)})
    digits = arrays["y"][:, 0]
    check_labels(digits, 10, path, first=1)
    return image_batch(arrays["X"].transpose(3, 2, 0, 1), digits % 10, 10, path)
