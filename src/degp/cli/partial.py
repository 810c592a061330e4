"""Training that Ctrl-C does not undo: checkpoints beside the model to be, and what they are checkpoints of."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from degp.files import first_difference, write_json
from degp.selection import epochs_done
from degp.training import Checkpoints

RUN = "run.json"


def partial_of(out: Path) -> Path:
    """`model.partial` beside `model`."""
    return out.with_name(f"{out.name}.partial")


@contextmanager
def resumable(folder: Path, run: Mapping[str, Any]) -> Iterator[int]:
    """How many epochs of the same run are done already; the folder goes when the block succeeds.

    Args:
        run: plain values that must be the same for a run to go on.
    """
    _check_same(folder, dict(run))
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RUN, dict(run))
    checkpoints = Checkpoints(folder)
    try:
        yield epochs_done(checkpoints)
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
    advice = f"run the same command again to go on with it, or delete {folder} to begin anew"
    try:
        before = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(
            f"{folder} must be a run that was broken off, but it has no readable {RUN}; {advice}"
        ) from None
    name = first_difference(run, before)
    if name is not None:
        raise ValueError(
            f"{folder} holds a run that was broken off, whose {name} is {before.get(name)} where this one's is "
            f"{run.get(name)}; {advice}"
        )
