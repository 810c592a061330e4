"""From a CSV file of 10⁵ rows × 50 columns to numbers: rows a second and peak memory, whole and in chunks."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from degp.tables import Preprocessing, read_table, stream_table

ROWS, COLUMNS, CHUNK_ROWS = 100_000, 50, 10_000


def run(rows: int = ROWS) -> list[dict[str, Any]]:
    """Each way by itself in a fresh process, so that its peak memory is its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        _write(path, rows)
        return [{"way": way, "rows": rows, **_measured(way, path, rows)} for way in WAYS]


def _write(path: Path, rows: int) -> None:
    """Numbers, with gaps in one column in ten, one column of categories and one of dates; written in parts."""
    generator = np.random.default_rng(0)
    for start in range(0, rows, CHUNK_ROWS):
        count = min(CHUNK_ROWS, rows - start)
        values = generator.normal(size=(count, COLUMNS - 2)).round(6)
        values[:, ::10][generator.random(values[:, ::10].shape) < 0.1] = np.nan
        part = pd.DataFrame(values, columns=[f"x{i}" for i in range(COLUMNS - 2)])
        part["city"] = generator.choice([f"city {i}" for i in range(80)], count)
        part["day"] = np.datetime64("2020-01-01") + generator.integers(0, 1500, count)
        part.to_csv(path, mode="a", header=start == 0, index=False)


def _measured(way: str, path: Path, rows: int) -> dict[str, float]:
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.tables", way, str(path)], capture_output=True, text=True, check=True
    ).stdout
    seconds, mebibytes = (float(word) for word in output.split())
    size = path.stat().st_size / 2**20
    return {"rows/s": rows / seconds, "peak MiB": mebibytes, "MiB of the file": size}


def _whole(path: Path) -> None:
    """What fitting does."""
    frame = read_table(path)
    Preprocessing.fit(frame).transform(frame)


def _chunks(path: Path) -> None:
    """What predicting does, with a record that is fitted on the first chunk."""
    preprocessing = Preprocessing.fit(next(stream_table(path, chunk_rows=CHUNK_ROWS)))
    for chunk in stream_table(path, preprocessing.names, chunk_rows=CHUNK_ROWS, text=preprocessing.text_columns):
        preprocessing.transform(chunk)


WAYS = {"read, fit, transform": _whole, "transform in chunks": _chunks}


def _one(way: str, path: Path) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, start = _mebibytes("VmRSS"), time.perf_counter()
    WAYS[way](path)
    print(time.perf_counter() - start, _mebibytes("VmHWM") - before)


def _mebibytes(entry: str) -> float:
    """Of this process alone; the peak that `resource` tells is at least that of the process which started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(entry)) / 2**10


if __name__ == "__main__":
    _one(sys.argv[1], Path(sys.argv[2]))
