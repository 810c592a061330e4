"""Files of untrusted origin, each with a valid example and the errors that its reader may raise."""

import gzip
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from degp import Batch, CheckpointError, Checkpoints, Ensemble, Gaussian, fit, methods
from degp.nets import mlp
from degp.runtime.execution import Vmap
from degp.sklearn import DEGPRegressor
from degp.tabular import Preprocessing, TableError, read_table
from degp.tabular.saving import ModelError, load_model, save_model
from degp.training import Plan
from experiments.data.cifar import read_binary, read_python
from experiments.data.idx import read_idx
from experiments.data.sources import DataSetError
from experiments.data.svhn import read_mat

__all__ = ["TARGETS", "Target"]

ROWS = 4
IMAGES = np.random.default_rng(0).integers(256, size=(ROWS, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(ROWS, dtype=np.uint8)


@dataclass(frozen=True)
class Target:
    """A kind of file to damage.

    Attributes:
        write: writes valid files into a folder and returns their names.
        read: reads them.
        errors: those that the reader may raise.
    """

    write: Callable[[Path], list[str]]
    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...]


def _one_file(name: str, content: Callable[[], bytes], read: Callable[[Path], Any], *errors: type[Exception]) -> Target:
    def write(folder: Path) -> list[str]:
        (folder / name).write_bytes(content())
        return [name]

    return Target(write, lambda folder: read(folder / name), errors)


def _idx() -> bytes:
    return struct.pack(">BBBBIII", 0, 0, 8, 3, ROWS, 32, 32) + IMAGES[:, 0].tobytes()


def _binary() -> bytes:
    return b"".join(bytes([label]) + image.tobytes() for label, image in zip(LABELS, IMAGES, strict=True))


def _python() -> bytes:
    import pickle  # writing one is safe; the reader never unpickles

    return pickle.dumps({"data": IMAGES.reshape(ROWS, -1), "labels": LABELS.tolist()}, 2)


def _mat() -> bytes:
    from scipy.io import savemat

    buffer = io.BytesIO()
    savemat(buffer, {"X": IMAGES.transpose(2, 3, 1, 0), "y": np.where(LABELS == 0, 10, LABELS)[:, None]})
    return buffer.getvalue()


def _csv() -> bytes:
    frame = pd.DataFrame({"a": [1.5, 2, None, 4], "b": ["x", "y", "x", None], "day": pd.date_range("2020", periods=4)})
    return frame.to_csv(index=False).encode()


def _parquet() -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame({"a": [1.5, 2, 3, 4], "b": ["x", "y", "x", "z"]}).to_parquet(buffer)
    return buffer.getvalue()


def _preprocessing() -> bytes:
    frame = pd.read_csv(io.BytesIO(_csv()))
    return json.dumps(Preprocessing.fit(frame).to_json()).encode()


def _read_preprocessing(path: Path) -> Preprocessing:
    return Preprocessing.from_json(json.loads(path.read_text(encoding="utf-8")))


def _write_model(folder: Path) -> list[str]:
    X = np.random.default_rng(0).standard_normal((30, 2))
    model = DEGPRegressor(members=2, hidden_layers=(4,), steps=2, alpha=1.0, random_state=0).fit(X, X[:, 0])
    save_model(folder / "model", model)
    return [f"model/{file.name}" for file in (folder / "model").iterdir()]


def _run(folder: Path) -> None:
    """Starts a run in the folder, or resumes it from its checkpoint."""
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: mlp(1, (4,), 1), 2, execution=Vmap())
    x = torch.linspace(0, 1, 8)[:, None]
    fit(
        ensemble,
        Batch(x, x),
        methods.de(Gaussian()),
        Plan(epochs=1, checkpoints=Checkpoints(folder / "run"), resume=True),
        generator=torch.Generator().manual_seed(0),
        progress=False,
    )


def _write_checkpoint(folder: Path) -> list[str]:
    _run(folder)
    return [str(file.relative_to(folder)) for file in (folder / "run").rglob("*") if file.is_file()]


TARGETS: dict[str, Target] = {
    "IDX": _one_file("images", _idx, partial(read_idx, shape=(ROWS, 32, 32)), DataSetError),
    "IDX, gzip": _one_file(
        "images.gz", lambda: gzip.compress(_idx()), partial(read_idx, shape=(ROWS, 32, 32)), DataSetError
    ),
    "CIFAR, binary": _one_file("batch.bin", _binary, partial(read_binary, rows=ROWS, classes=(10,)), DataSetError),
    "CIFAR, Python": _one_file(
        "batch", _python, partial(read_python, rows=ROWS, key="labels", classes=10), DataSetError
    ),
    "SVHN .mat": _one_file("digits.mat", _mat, partial(read_mat, rows=ROWS), DataSetError),
    "CSV table": _one_file("table.csv", _csv, read_table, TableError),
    "Parquet table": _one_file("table.parquet", _parquet, read_table, TableError),
    "preprocessing (JSON)": _one_file("preprocessing.json", _preprocessing, _read_preprocessing, ValueError),
    "model folder": Target(_write_model, lambda folder: load_model(folder / "model"), (ModelError,)),
    "checkpoint": Target(_write_checkpoint, _run, (CheckpointError,)),
}
