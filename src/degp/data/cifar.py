"""CIFAR-10 and CIFAR-100: colour images in the binary and in the Python form of their makers, and a part as .npz."""

import math
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from degp.data.labelled import check_labels, check_shape, labelled, reading
from degp.data.plain_pickle import read_plain
from degp.data.registry import data_set, locate_files
from degp.data.sources import DataSetError
from degp.typing import Batch

SHAPE = (3, 32, 32)
PIXELS = math.prod(SHAPE)


def cifar10(split: str) -> Batch:
    """Animals and vehicles of ten kinds: images (N, 3, 32, 32) in uint8, labels (N,) in int64.

    50,000 of "train", in the order of the five original files, and 10,000 of "test".
    """
    binary, python = partial(read_binary, classes=(10,)), partial(read_python, key="labels", classes=10)
    return _read("cifar10", split, {".bin": binary, "": python})


def cifar100(split: str) -> Batch:
    """Things of a hundred kinds (the fine labels), as `cifar10`: 50,000 of "train", 10,000 of "test"."""
    binary, python = partial(read_binary, classes=(20, 100)), partial(read_python, key="fine_labels", classes=100)
    return _read("cifar100", split, {".bin": binary, "": python})


def cifar100_part(split: str) -> Batch:
    """A part of CIFAR-100, for trying things out: the first 486 images of "train" or the first 916 of "test"."""
    return _read("cifar100-part", split, {".npz": partial(read_npz, classes=100)})


def read_binary(path: Path, rows: int, *, classes: tuple[int, ...]) -> Batch:
    """Images from the binary form: a byte for each label, then 3072 for the image, channel by channel.

    Args:
        classes: number of classes of each label byte, the label proper last; CIFAR-100 has the coarse one before it.
    """
    width = len(classes) + PIXELS
    with reading(path):
        _check_size(path, rows, width)
        table = np.fromfile(path, np.uint8).reshape(rows, width)
    for column, number in enumerate(classes):
        check_labels(table[:, column], number, path)
    return labelled(table[:, len(classes) :].reshape(rows, *SHAPE), table[:, len(classes) - 1], classes[-1], path)


def read_python(path: Path, rows: int, *, key: str, classes: int) -> Batch:
    """Images from the Python form, a dict with `data` (N, 3072) and its labels in the list `key`; see `read_plain`."""
    limit = (
        rows * (2 * PIXELS + 1024) + 2**16
    )  # protocol 2 of Python 3 takes two bytes for one; names of files come too
    values = read_plain(path, limit)
    values = values if isinstance(values, dict) else {}
    named = {name.decode("latin1") if isinstance(name, bytes) else name: value for name, value in values.items()}
    images, labels = named.get("data"), named.get(key)
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise DataSetError(
            f"{path} must hold a dict with an array 'data' and a list {key!r}, but it holds "
            f"{sorted(named) or 'no dict'}; it is damaged or another file: copy it again"
        )
    check_shape(images.shape, (rows, PIXELS), path)
    return labelled(images.reshape(rows, *SHAPE), _whole_numbers(labels, rows, path), classes, path)


def read_npz(path: Path, rows: int, *, classes: int) -> Batch:
    """Images `x` (N, 32, 32, 3) with labels `fine` (N,), both in uint8, from NumPy's archive."""
    with reading(path), zipfile.ZipFile(path) as archive:
        images = _member(archive, "x.npy", (rows, *SHAPE[1:], SHAPE[0]), path)
        labels = _member(archive, "fine.npy", (rows,), path)
    return labelled(images.transpose(0, 3, 1, 2), labels, classes, path)


def _read(name: str, split: str, readers: Mapping[str, Callable[[Path, int], Batch]]) -> Batch:
    """All files of a split, each by the reader for its ending, as one batch."""
    paths = locate_files(name, split)
    rows = data_set(name).splits[split] // len(paths)
    parts = [readers[path.suffix](path, rows) for path in paths]
    return Batch(torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts]))


def _check_size(path: Path, rows: int, width: int) -> None:
    size = path.stat().st_size
    if size != rows * width:
        raise DataSetError(
            f"{path} must have {rows * width} bytes, {width} for each of {rows} images, but it has {size}; "
            "copy it again"
        )


def _whole_numbers(labels: list[object], rows: int, path: Path) -> np.ndarray:
    if len(labels) != rows or not all(type(label) is int for label in labels):
        raise DataSetError(f"{path} must have {rows} labels, all whole numbers, but it has others; copy it again")
    return np.array(labels, np.int64)


def _member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], path: Path) -> UInt8[np.ndarray, "..."]:
    """An array of bytes in an archive, which must have this shape; reads no more than that takes."""
    size = math.prod(shape)
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"its format {version} is not the one for plain arrays, (1, 0)")
        found, columns_first, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype != np.uint8 or columns_first:
            raise ValueError(f"its array {name} is of {dtype}, and should be of uint8, by rows")
        check_shape(found, shape, path)
        values = file.read(size + 1)  # one more than promised, which must not be there
    if len(values) != size:
        raise ValueError(f"its array {name} should have {size} bytes")
    return np.frombuffer(values, np.uint8).reshape(shape)
