"""Files that are whole or not there, written beside their place and then moved into it; and whether tensors fit."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path to write to; its file takes the place of `path` when the block ends, and vanishes when it fails."""
    path = Path(path)
    with _told_of(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    try:
        yield Path(name)
        _flush(Path(name))
        os.chmod(name, 0o666 & ~_umask())  # a temporary file is its owner's alone, what takes its place is not
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill; it becomes `path`, which must not exist, when the block ends, and vanishes when it fails."""
    path = Path(path)
    with _told_of(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield draft
        for file in draft.iterdir():
            _flush(file)
        draft.chmod(0o777 & ~_umask())
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def require_writable(folder: Path, *, option: str = "--out") -> None:
    """That files can be made in a folder, tried with one that goes again: better now than after the work.

    Args:
        folder: where it does not exist yet, the nearest one above it is tried, and none is made.
        option: of the command line, by which another can be chosen.
    """
    folder = Path(folder)
    with _told_of(folder, f" with {option}"):
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        handle, name = tempfile.mkstemp(dir=nearest)
        os.close(handle)
        os.unlink(name)


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} must be JSON as it was written, but {error}; restore it, or delete it") from None


def write_json(path: Path, value: Any) -> None:
    """Indented JSON, whole or not at all."""
    with new_file(path) as draft:
        draft.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file in a draft; what keeps it from being written is an OSError, as of any other file."""
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        raise OSError(f"{path.name} cannot be written: {error}") from None


def misfit(expected: Mapping[str, Tensor], saved: Mapping[str, Tensor], prefix: str = "") -> str | None:
    """The first tensor that is missing, or has another shape or type than expected, in words; None where all fit."""
    for name in sorted(expected.keys() | saved.keys()):
        ours, theirs = (_form(tensors[name]) if name in tensors else "nothing" for tensors in (expected, saved))
        if ours != theirs:
            return f"{prefix}{name} is {theirs} and should be {ours}"
    return None


def first_difference(own: Mapping[str, Any], saved: Mapping[str, Any]) -> str | None:
    """The first name, by the alphabet, under which two sets of plain values differ; None where they are the same."""
    return next((name for name in sorted(own.keys() | saved.keys()) if own.get(name) != saved.get(name)), None)


@contextmanager
def _told_of(folder: Path, by: str = "") -> Iterator[None]:
    """What keeps files from being made in a folder, with the folder's name in place of a draft's."""
    try:
        yield
    except OSError as error:
        reason = "it is a file" if folder.is_file() else error.strerror
        raise type(error)(
            f"{folder} must be a folder that can be written to, but {reason}; choose another{by}"
        ) from None


def _form(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _flush(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
