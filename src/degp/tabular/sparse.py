"""Sparse matrices as dense arrays, where they fit into memory."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

__all__ = ["free_memory", "to_dense"]

COPIES = 4  # of the dense table in float64, while an estimator standardises and splits it


def to_dense(matrix: Any) -> Float64[np.ndarray, "N D"]:
    """A scipy.sparse matrix or array as a dense one; raises MemoryError, before it is made, if it would not fit."""
    if np.dtype(matrix.dtype).kind == "c":
        raise ValueError(f"Complex data not supported\n{matrix!r}\n")
    rows, columns = matrix.shape
    needed, free = COPIES * 8 * rows * columns, free_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"a sparse matrix is made dense, and {rows} rows of {columns} columns then take {needed / 1e9:.1f} GB, but "
            f"{free / 1e9:.1f} GB of memory are free; pass fewer rows at a time to predict, or reduce the columns, "
            f"as by sklearn.decomposition.TruncatedSVD"
        )
    return matrix.astype(np.float64).toarray()


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that new arrays can take without swapping; elsewhere than on Linux all memory, or None if unknown."""
    try:
        (line,) = (line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pages = getattr(os, "sysconf_names", {}).get("SC_PHYS_PAGES")
        return None if pages is None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
