"""From a CSV file of 10⁵ rows × 50 columns to numbers: rows per second and peak memory, whole and in chunks."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from degp.tabular import Preprocessing, read_table, stream_table

__all__ = ["run"]

ROWS, COLUMNS, CHUNK_ROWS = 100_000, 50, 10_000


def run(rows: int = ROWS) -> list[dict[str, Any]]:
    """Each mode in a process of its own, so that its peak memory is measured separately."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        _write(path, rows)
        return [{"mode": mode, "rows": rows, **_measured(mode, path, rows)} for mode in MODES]


def _write(path: Path, rows: int) -> None:
    """Numbers, with missing cells in every tenth column, one column of categories and one of dates."""
    generator = np.random.default_rng(0)
    for start in range(0, rows, CHUNK_ROWS):
        count = min(CHUNK_ROWS, rows - start)
        values = generator.normal(size=(count, COLUMNS - 2)).round(6)
        values[:, ::10][generator.random(values[:, ::10].shape) < 0.1] = np.nan
        part = pd.DataFrame(values, columns=[f"x{i}" for i in range(COLUMNS - 2)])
        part["city"] = generator.choice([f"city {i}" for i in range(80)], count)
        part["day"] = np.datetime64("2020-01-01") + generator.integers(0, 1500, count)
        part.to_csv(path, mode="a", header=start == 0, index=False)


def _measured(mode: str, path: Path, rows: int) -> dict[str, float]:
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.tables", mode, str(path)], capture_output=True, text=True, check=True
    ).stdout
    seconds, mebibytes = (float(word) for word in output.split())
    size = path.stat().st_size / 2**20
    return {"rows/s": rows / seconds, "peak MiB": mebibytes, "MiB of the file": size}


def _whole(path: Path) -> None:
    """As for training."""
    frame = read_table(path)
    Preprocessing.fit(frame).transform(frame)


def _chunks(path: Path) -> None:
    """As for prediction, with preprocessing fitted on the first chunk."""
    preprocessing = Preprocessing.fit(next(stream_table(path, chunk_rows=CHUNK_ROWS)))
    for chunk in stream_table(path, preprocessing.names, chunk_rows=CHUNK_ROWS, text=preprocessing.text_columns):
        preprocessing.transform(chunk)


MODES = {"read, fit, transform": _whole, "transform in chunks": _chunks}


def _run_one(mode: str, path: Path) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, start = _mebibytes("VmRSS"), time.perf_counter()
    MODES[mode](path)
    print(time.perf_counter() - start, _mebibytes("VmHWM") - before)


def _mebibytes(entry: str) -> float:
    """Memory of this process alone; the peak of `resource` includes that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(entry)) / 2**10


if __name__ == "__main__":
    _run_one(sys.argv[1], Path(sys.argv[2]))
