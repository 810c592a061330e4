"""CIFAR-10-C and CIFAR-100-C: the test images under 19 corruptions, each at five severities."""

from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from degp.typing import Batch
from experiments.data.parsing import check_shape, image_batch, parsing
from experiments.data.registry import data_set, locate_files
from experiments.data.sources import DataSetError

__all__ = ["SEVERITIES", "cifar10_c", "cifar100_c", "read_npy"]

SEVERITIES = (1, 2, 3, 4, 5)


def cifar10_c(corruption: str, severity: int) -> Batch:
    """The test images of CIFAR-10 under a corruption, at a severity from 1 to 5: (10,000, 3, 32, 32) in uint8.

        cifar10_c("fog", severity=3)

    Images and labels are in the order of `cifar10("test")`. `data_set("cifar10-c").splits` lists the corruptions.
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
    part = slice(size * (severity - 1), size * severity)  # images are sorted by severity
    pixels = read_npy(images, (N, H, W, C), kinds="u")[part]
    return image_batch(pixels.transpose(0, 3, 1, 2), read_npy(labels, (N,), kinds="iu")[part], classes, labels)


def read_npy(path: Path, shape: tuple[int, ...], *, kinds: str) -> Shaped[np.ndarray, "..."]:
    """The array in a .npy file, memory-mapped; it must have this shape.

    Args:
        kinds: the dtype kinds that are accepted: "u" for images, which are bytes, "iu" for labels.
    """
    with parsing(path):
        array = np.lib.format.open_memmap(path, mode="r")  # never unpickles, unlike np.load
    if array.dtype.kind not in kinds or (kinds == "u" and array.itemsize != 1):
        raise DataSetError(f"{path} must hold integers, images in uint8, but it holds {array.dtype}; copy it again")
    check_shape(array.shape, shape, path)
    end, size = array.offset + array.nbytes, path.stat().st_size
    if end != size:  # the length of the header is wrong, and so is the offset of the data
        raise DataSetError(f"{path} must end with its array, at byte {end}, but it has {size} bytes; copy it again")
    return array
