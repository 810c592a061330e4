"""CIFAR-10-C and CIFAR-100-C: the test images under 19 corruptions, each at five severities."""

from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from degp.data.labelled import check_shape, labelled, reading
from degp.data.registry import data_set, locate_files
from degp.data.sources import DataSetError
from degp.typing import Batch

SEVERITIES = (1, 2, 3, 4, 5)


def cifar10_c(corruption: str, severity: int) -> Batch:
    """The test images of CIFAR-10 under a corruption, at a severity from 1 to 5: (10,000, 3, 32, 32) in uint8.

        cifar10_c("fog", severity=3)

    Images and labels come in the order of `cifar10("test")`. `data_set("cifar10-c").splits` names the corruptions.
    """
    return _corrupted("cifar10-c", corruption, severity, classes=10)


def cifar100_c(corruption: str, severity: int) -> Batch:
    """The test images of CIFAR-100 with their fine labels, as `cifar10_c`."""
    return _corrupted("cifar100-c", corruption, severity, classes=100)


def _corrupted(name: str, corruption: str, severity: int, *, classes: int) -> Batch:
    if severity not in SEVERITIES:
        raise DataSetError(f"a severity must be one of 1, 2, 3, 4, 5, but it is {severity}; 1 is the mildest")
    record = data_set(name)
    images, labels = locate_files(name, corruption)
    N, (C, H, W) = record.splits[corruption], record.features
    size = N // len(SEVERITIES)
    part = slice(size * (severity - 1), size * severity)  # all images at severity 1 come first, and so on
    pixels = read_npy(images, (N, H, W, C), kinds="u")[part]
    return labelled(pixels.transpose(0, 3, 1, 2), read_npy(labels, (N,), kinds="iu")[part], classes, labels)


def read_npy(path: Path, shape: tuple[int, ...], *, kinds: str) -> Shaped[np.ndarray, "..."]:
    """The array in NumPy's file, left on the disk until its parts are read; its shape must be this one.

    Args:
        kinds: NumPy's letters for the types it may have: "u" for images, which are bytes, "iu" for labels.
    """
    with reading(path):
        array = np.lib.format.open_memmap(path, mode="r")  # knows no pickles, unlike np.load
    if array.dtype.kind not in kinds or (kinds == "u" and array.itemsize != 1):
        raise DataSetError(
            f"{path} must hold whole numbers, images in uint8, but it holds {array.dtype}; copy it again"
        )
    check_shape(array.shape, shape, path)
    end, size = array.offset + array.nbytes, path.stat().st_size
    if end != size:  # the length of its header is wrong, and so is where its numbers begin
        raise DataSetError(f"{path} must end with its array, at byte {end}, but it has {size} bytes; copy it again")
    return array
