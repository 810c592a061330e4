"""Shared by all readers: errors about damaged files, checks of shapes and labels, and batches of images."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import torch
from jaxtyping import Integer, UInt8

from degp.typing import Batch
from experiments.data.sources import DataSetError

__all__ = ["check_labels", "check_shape", "image_batch", "parsing", "read_bytes", "read_exactly"]


@contextmanager
def parsing(path: Path) -> Iterator[None]:
    """Turns any exception of a parser into a DataSetError that names the file."""
    try:
        yield
    except DataSetError:
        raise
    except Exception as error:  # parsers raise many kinds on unexpected bytes, including MemoryError
        raise DataSetError(
            f"{path} must be a complete file in its original format, but it cannot be read "
            f"({str(error) or type(error).__name__}); it is damaged or truncated: copy it again"
        ) from error


def read_bytes(path: Path, limit: int) -> bytes:
    """All bytes of a file, at most `limit`."""
    size = path.stat().st_size
    if size > limit:
        raise DataSetError(f"{path} must have at most {limit} bytes, but it has {size}; copy it again")
    return path.read_bytes()


def read_exactly(file: IO[bytes], size: int, path: Path) -> bytes:
    """The remaining bytes of an open file, which must be `size`; never reads more than one byte beyond."""
    values = file.read(size + 1)
    if len(values) != size:
        found = "more" if len(values) > size else len(values)
        raise DataSetError(f"{path} must hold {size} bytes after its header, but it has {found}; copy it again")
    return values


def check_shape(found: tuple[int, ...], expected: tuple[int, ...], path: Path) -> None:
    """Raises DataSetError if an array in a file does not have the documented shape."""
    if found != expected:
        raise DataSetError(f"{path} must hold an array of shape {expected}, but its shape is {found}; copy it again")


def check_labels(labels: Integer[np.ndarray, "N"], classes: int, path: Path, *, first: int = 0) -> None:
    """Raises DataSetError unless every label is one of first, …, first + classes − 1."""
    bad = np.flatnonzero((labels < first) | (labels >= first + classes))
    if len(bad):
        raise DataSetError(
            f"labels must be integers from {first} to {first + classes - 1}, but {path} has {len(bad)} others, "
            f"the first is {labels[bad[0]]} in row {bad[0]}, counted from 0; copy the file again"
        )


def image_batch(
    images: UInt8[np.ndarray, "N C H W"], labels: Integer[np.ndarray, "N"], classes: int, path: Path
) -> Batch:
    """Images in uint8 with labels in int64, copied out of the file's memory, after a check of the labels."""
    check_labels(labels, classes, path)
    return Batch(torch.from_numpy(np.array(images, order="C")), torch.from_numpy(labels.astype(np.int64)))
