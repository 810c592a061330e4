"""What all readers of images share: clear words about damaged files, and images with their labels as one batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Integer, UInt8

from degp.data.sources import DataSetError
from degp.typing import Batch


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns whatever a parser raises on a damaged file into a DataSetError that names the file."""
    try:
        yield
    except DataSetError:
        raise
    except Exception as error:  # parsers raise all kinds on bytes they did not expect, MemoryError among them
        raise DataSetError(
            f"{path} must be a whole file in its original format, but it cannot be read "
            f"({str(error) or type(error).__name__}); it is damaged or cut short: copy it again"
        ) from error


def read_bytes(path: Path, most: int) -> bytes:
    """All bytes of a file, which must not be more than `most`."""
    size = path.stat().st_size
    if size > most:
        raise DataSetError(f"{path} must have at most {most} bytes, but it has {size}; copy it again")
    return path.read_bytes()


def check_shape(found: tuple[int, ...], expected: tuple[int, ...], path: Path) -> None:
    """Raises DataSetError where an array in a file does not have the shape that is known of its set."""
    if found != expected:
        raise DataSetError(f"{path} must hold an array of shape {expected}, but its shape is {found}; copy it again")


def check_labels(labels: Integer[np.ndarray, "N"], classes: int, path: Path, *, first: int = 0) -> None:
    """Raises DataSetError where a label is not one of first, …, first + classes − 1."""
    bad = np.flatnonzero((labels < first) | (labels >= first + classes))
    if len(bad):
        raise DataSetError(
            f"labels must be whole numbers from {first} to {first + classes - 1}, but {path} has {len(bad)} others, "
            f"the first is {labels[bad[0]]} in row {bad[0]}, counted from 0; copy the file again"
        )


def labelled(images: UInt8[np.ndarray, "N C H W"], labels: Integer[np.ndarray, "N"], classes: int, path: Path) -> Batch:
    """Images in uint8 with labels in int64, copied out of the file's memory, after a look at the labels."""
    check_labels(labels, classes, path)
    return Batch(torch.from_numpy(np.array(images, order="C")), torch.from_numpy(labels.astype(np.int64)))
