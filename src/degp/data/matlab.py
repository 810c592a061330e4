"""Arrays of bytes from MATLAB's files of version 5, packed or not.

By hand, for SciPy's reader makes room for whatever a damaged file promises, and may take the interpreter down with it.
A file is a header of 128 bytes and then elements: a tag with type and size, and the content. An array is an element
that holds four: flags, shape, name and values.
"""

import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from degp.data.labelled import check_shape, read_bytes, reading

HEADER = 128
SLACK = 2**16  # for tags, names and what packing may add
BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
INT8, UINT8, INT32, UINT32, ARRAY, PACKED = 1, 2, 5, 6, 14, 15


def read_arrays(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, UInt8[np.ndarray, "..."]]:
    """The arrays of these names, which must be of bytes and have these shapes; others are passed over."""
    most = sum(math.prod(shape) for shape in shapes.values()) + SLACK  # what is packed is no larger than that
    with reading(path):
        arrays = dict(_arrays(read_bytes(path, most), most))
        missing = [name for name in shapes if name not in arrays]
        if missing:
            raise ValueError(f"it has no array {' and no '.join(missing)}")
        for name, shape in shapes.items():
            check_shape(arrays[name][0], shape, path)
        return {name: _values(*arrays[name]) for name in shapes}


def _arrays(content: bytes, most: int) -> Iterator[tuple[str, tuple[tuple[int, ...], int, memoryview]]]:
    """(name, (shape, type of the values, values)) of each array in a file, which unpacks to `most` bytes at most."""
    order = BYTE_ORDERS.get(content[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("its header is not that of MATLAB's version 5")
    for kind, element in _elements(memoryview(content)[HEADER:], order):
        if kind == PACKED:
            content = _unpacked(element, most)
            most -= len(content)
            ((kind, element),) = _elements(memoryview(content), order)
        if kind == ARRAY:
            yield _array(element, order)


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """(type, content) of each element, one after the other."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        start, end = at + 8, at + 8 + size + (0 if kind == PACKED else -size % 8)
        if kind >> 16:  # up to four bytes stand in the tag itself
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if start + size > min(end, len(content)):
            raise ValueError("an element has fewer bytes than it says")
        yield kind, content[start : start + size]
        at = end


def _unpacked(packed: memoryview, most: int) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(packed, most + 1)  # 0 would mean no limit
    if not stream.eof or len(content) > most:
        raise ValueError("what is packed is cut short, or more than the arrays of this set take")
    return content


def _array(element: memoryview, order: str) -> tuple[str, tuple[tuple[int, ...], int, memoryview]]:
    (flags, _), (axes, shape), (text, name), (kind, values) = islice(_elements(element, order), 4)
    if (flags, axes, text) != (UINT32, INT32, INT8):
        raise ValueError("an array does not begin with flags, shape and name")
    return str(name, "latin1"), (struct.unpack(f"{order}{len(shape) // 4}i", shape), kind, values)


def _values(shape: tuple[int, ...], kind: int, values: memoryview) -> UInt8[np.ndarray, "..."]:
    if kind != UINT8:
        raise ValueError(f"the values of an array are of type {kind}, and should be bytes, {UINT8}")
    return np.frombuffer(values, np.uint8).reshape(shape, order="F")
