"""CIFAR-10 and CIFAR-100: colour images in the original binary and Python formats, and a subset as .npz."""

import math
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from degp.typing import Batch
from experiments.data.parsing import check_labels, check_shape, image_batch, parsing, read_exactly
from experiments.data.plain_pickle import read_plain
from experiments.data.registry import data_set, locate_files
from experiments.data.sources import DataSetError

__all__ = ["cifar10", "cifar100", "cifar100_part", "read_binary", "read_npz", "read_python"]

SHAPE = (3, 32, 32)
PIXELS = math.prod(SHAPE)


def cifar10(split: str) -> Batch:
    """Ten classes of animals and vehicles: images (N, 3, 32, 32) in uint8, labels (N,) in int64.

    50,000 of "train", in the order of the five original files, and 10,000 of "test".
    """
    binary, python = partial(read_binary, classes=(10,)), partial(read_python, key="labels", classes=10)
    return _read("cifar10", split, {".bin": binary, "": python})


def cifar100(split: str) -> Batch:
    """A hundred classes (the fine labels), as `cifar10`: 50,000 images of "train", 10,000 of "test"."""
    binary, python = partial(read_binary, classes=(20, 100)), partial(read_python, key="fine_labels", classes=100)
    return _read("cifar100", split, {".bin": binary, "": python})


def cifar100_part(split: str) -> Batch:
    """A subset of CIFAR-100 for quick tests: the first 486 images of "train" or the first 916 of "test"."""
    return _read("cifar100-part", split, {".npz": partial(read_npz, classes=100)})


def read_binary(path: Path, rows: int, *, classes: tuple[int, ...]) -> Batch:
    """Images in the binary format: one byte per label, then 3072 for the image, channel by channel.

    Args:
        classes: number of classes of each label byte; the last is returned (CIFAR-100 has the coarse label first).
    """
    width = len(classes) + PIXELS
    with parsing(path):
        _check_size(path, rows, width)
        table = np.fromfile(path, np.uint8).reshape(rows, width)
    for column, number in enumerate(classes):
        check_labels(table[:, column], number, path)
    return image_batch(table[:, len(classes) :].reshape(rows, *SHAPE), table[:, len(classes) - 1], classes[-1], path)


def read_python(path: Path, rows: int, *, key: str, classes: int) -> Batch:
    """Images in the Python format: a dict with `data` (N, 3072) and the labels in the list `key`; see `read_plain`."""
    # protocol 2 of Python 3 writes a byte as up to two; 1024 bytes per image for its file name
    values = read_plain(path, limit=rows * (2 * PIXELS + 1024) + 2**16)
    values = values if isinstance(values, dict) else {}
    named = {name.decode("latin1") if isinstance(name, bytes) else name: value for name, value in values.items()}
    images, labels = named.get("data"), named.get(key)
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise DataSetError(
            f"{path} must hold a dict with an array 'data' and a list {key!r}, but it holds "
            f"{sorted(named) or 'no dict'}; it is damaged or another file: copy it again"
        )
    check_shape(images.shape, (rows, PIXELS), path)
    return image_batch(images.reshape(rows, *SHAPE), _integers(labels, rows, path), classes, path)


def read_npz(path: Path, rows: int, *, classes: int) -> Batch:
    """Images `x` (N, 32, 32, 3) with labels `fine` (N,), both in uint8, from a NumPy archive."""
    with parsing(path), zipfile.ZipFile(path) as archive:
        images = _member(archive, "x.npy", (rows, *SHAPE[1:], SHAPE[0]), path)
        labels = _member(archive, "fine.npy", (rows,), path)
    return image_batch(images.transpose(0, 3, 1, 2), labels, classes, path)


def _read(name: str, split: str, readers: Mapping[str, Callable[[Path, int], Batch]]) -> Batch:
    """All files of a split, each read according to its suffix, as one batch."""
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


def _integers(labels: list[object], rows: int, path: Path) -> np.ndarray:
    if len(labels) != rows or not all(type(label) is int for label in labels):
        raise DataSetError(f"{path} must have {rows} labels, all integers, but it has others; copy it again")
    return np.array(labels, np.int64)


def _member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], path: Path) -> UInt8[np.ndarray, "..."]:
    """An array of bytes in an archive, which must have this shape; reads no more than its size."""
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"its format version is {version}, and that of plain arrays is (1, 0)")
        found, column_major, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype != np.uint8 or column_major:
            raise ValueError(f"its array {name} is of {dtype}, and should be of uint8, row-major")
        check_shape(found, shape, path)
        return np.frombuffer(read_exactly(file, math.prod(shape), path), np.uint8).reshape(shape)
