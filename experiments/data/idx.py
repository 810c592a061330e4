"""MNIST, Fashion-MNIST and KMNIST: grey images in the IDX format, with or without gzip."""

import gzip
import io
import math
import struct
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from degp.typing import Batch
from experiments.data.parsing import check_shape, image_batch, parsing, read_exactly
from experiments.data.registry import data_set, locate_files
from experiments.data.sources import DataSetError

__all__ = ["fashion_mnist", "kmnist", "mnist", "read_idx"]

UINT8 = 0x08
GZIP = b"\x1f\x8b"
CLASSES = 10


def fashion_mnist(split: str) -> Batch:
    """Ten classes of clothing, as `mnist`: 60,000 images of "train", 10,000 of "test"."""
    return _grey_images("fashion-mnist", split)


def mnist(split: str) -> Batch:
    """Handwritten digits: images (N, 1, 28, 28) in uint8, labels (N,) in int64; 60,000 of "train", 10,000 of "test"."""
    return _grey_images("mnist", split)


def kmnist(split: str) -> Batch:
    """Ten cursive Japanese characters, as `mnist`: 60,000 images of "train", 10,000 of "test"."""
    return _grey_images("kmnist", split)


def read_idx(path: Path, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
    """The array of bytes in an IDX file, which must have this shape; reads no more than its size.

    The file begins with 0, 0, the type (8 for bytes), the number of axes and then each axis in four bytes.
    """
    with parsing(path), _open(path) as file:
        _check_header(file.read(4 + 4 * len(shape)), shape, path)
        values = read_exactly(file, math.prod(shape), path)
    return np.frombuffer(values, np.uint8).reshape(shape)


def _grey_images(name: str, split: str) -> Batch:
    record = data_set(name)
    images, labels = locate_files(name, split)
    shape = (record.splits[split], *record.features[1:])  # the file has no axis for the one channel
    return image_batch(read_idx(images, shape)[:, None], read_idx(labels, shape[:1]), CLASSES, labels)


def _check_header(header: bytes, shape: tuple[int, ...], path: Path) -> None:
    magic = bytes([0, 0, UINT8, len(shape)])
    if len(header) != 4 + 4 * len(shape) or header[:4] != magic:
        raise DataSetError(
            f"an IDX file of bytes with {len(shape)} axes must begin with {magic.hex()}, but {path} begins with "
            f"{header[:4].hex() or 'nothing'}; it is damaged or another file: copy it again"
        )
    check_shape(struct.unpack(f">{len(shape)}I", header[4:]), shape, path)


def _open(path: Path) -> gzip.GzipFile | io.BufferedReader:
    with path.open("rb") as file:
        compressed = file.read(len(GZIP)) == GZIP
    return gzip.GzipFile(path) if compressed else path.open("rb")
