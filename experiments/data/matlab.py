"""Arrays of bytes from MATLAB files of version 5, compressed or not.

SciPy's reader is not used: it allocates whatever a damaged file declares and may crash the interpreter. A file is a
header of 128 bytes followed by elements: a tag with type and size, and the content. An array is an element that holds
four others: flags, shape, name and values.
"""

import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from experiments.data.parsing import check_shape, parsing, read_bytes

__all__ = ["read_arrays"]

HEADER = 128
SLACK = 2**16  # for tags, names and the overhead of compression
BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
INT8, UINT8, INT32, UINT32, ARRAY, COMPRESSED = 1, 2, 5, 6, 14, 15


def read_arrays(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, UInt8[np.ndarray, "..."]]:
    """The arrays of these names, which must be of bytes and have these shapes; others are ignored."""
    limit = sum(math.prod(shape) for shape in shapes.values()) + SLACK  # before and after decompression
    with parsing(path):
        arrays = dict(_arrays(read_bytes(path, limit), limit))
        missing = [name for name in shapes if name not in arrays]
        if missing:
            raise ValueError(f"it has no array {' and no '.join(missing)}")
        for name, shape in shapes.items():
            check_shape(arrays[name][0], shape, path)
        return {name: _values(*arrays[name]) for name in shapes}


def _arrays(content: bytes, limit: int) -> Iterator[tuple[str, tuple[tuple[int, ...], int, memoryview]]]:
    """(name, (shape, type of the values, values)) of each array in a file of at most `limit` bytes decompressed."""
    order = BYTE_ORDERS.get(content[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("its header is not that of MATLAB version 5")
    for kind, element in _elements(memoryview(content)[HEADER:], order):
        if kind == COMPRESSED:
            content = _decompressed(element, limit)
            limit -= len(content)
            ((kind, element),) = _elements(memoryview(content), order)
        if kind == ARRAY:
            yield _array(element, order)


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """(type, content) of each element."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        start, end = at + 8, at + 8 + size + (0 if kind == COMPRESSED else -size % 8)
        if kind >> 16:  # up to four bytes are stored in the tag itself
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if start + size > min(end, len(content)):
            raise ValueError("an element has fewer bytes than its tag declares")
        yield kind, content[start : start + size]
        at = end


def _decompressed(compressed: memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(compressed, limit + 1)  # 0 would mean no limit
    if not stream.eof or len(content) > limit:
        raise ValueError("its compressed data are truncated, or larger than the arrays of this set")
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
