"""Interrupted fits: checkpoints next to the model's folder, with the settings of their run."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from degp.runtime.files import first_difference, write_json
from degp.training import Checkpoints, epoch_of

__all__ = ["file_digest", "partial_of", "resumable"]

RUN = "run.json"


def partial_of(out: Path) -> Path:
    """`model.partial` next to `model`."""
    return out.with_name(f"{out.name}.partial")


@contextmanager
def resumable(folder: Path, run: Mapping[str, Any]) -> Iterator[int]:
    """The number of epochs already done of the same run; the folder is deleted when the block succeeds.

    Args:
        run: plain values that must be the same for a run to be resumed.
    """
    _check_same(folder, dict(run))
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RUN, dict(run))
    checkpoints = Checkpoints(folder)
    try:
        newest = checkpoints.newest()
        yield 0 if newest is None else epoch_of(newest)
    except BaseException:
        if checkpoints.newest() is None:
            shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def file_digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_same(folder: Path, run: dict[str, Any]) -> None:
    if not folder.exists():
        return
    advice = f"run the same command again to resume it, or delete {folder} to start over"
    try:
        before = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"{folder} must be an interrupted run, but it has no readable {RUN}; {advice}") from None
    name = first_difference(run, before)
    if name is not None:
        raise ValueError(
            f"{folder} holds an interrupted run, whose {name} is {before.get(name)} where this one's is "
            f"{run.get(name)}; {advice}"
        )
