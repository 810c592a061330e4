"""Atomic files and folders, written under a temporary name and then moved; and whether saved tensors fit."""

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

__all__ = [
    "first_difference",
    "misfit",
    "new_file",
    "new_folder",
    "read_json",
    "require_writable",
    "write_json",
    "write_tensors",
]


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path to write to; its file replaces `path` when the block ends, and is deleted when it fails."""
    path = Path(path)
    with _naming(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    try:
        yield Path(name)
        _flush(Path(name))
        os.chmod(name, 0o666 & ~_umask())  # a temporary file is readable by its owner only
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill; it becomes `path`, which must not exist, when the block ends, and is deleted when it fails."""
    path = Path(path)
    with _naming(path.parent):
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
    """Raises OSError where no file can be created in a folder: better before the work than after it.

    Args:
        folder: where it does not exist, its nearest existing parent is tried; no folder is created.
        option: of the command line, by which another can be chosen.
    """
    folder = Path(folder)
    with _naming(folder, f" with {option}"):
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        handle, name = tempfile.mkstemp(dir=nearest)
        os.close(handle)
        os.unlink(name)


def read_json(path: Path) -> Any:
    """The value that `write_json` wrote."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} must be JSON as it was written, but {error}; restore it, or delete it") from None


def write_json(path: Path, value: Any) -> None:
    """Indented JSON, written atomically."""
    with new_file(path) as draft:
        draft.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file; a failure to write it is an OSError, as for any other file."""
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        raise OSError(f"{path.name} cannot be written: {error}") from None


def misfit(expected: Mapping[str, Tensor], saved: Mapping[str, Tensor], prefix: str = "") -> str | None:
    """The first tensor that is missing or has an unexpected shape or dtype, as a message; None where all fit."""
    for name in sorted(expected.keys() | saved.keys()):
        ours, theirs = (_form(tensors[name]) if name in tensors else "nothing" for tensors in (expected, saved))
        if ours != theirs:
            return f"{prefix}{name} is {theirs} and should be {ours}"
    return None


def first_difference(own: Mapping[str, Any], saved: Mapping[str, Any]) -> str | None:
    """The first name, in alphabetical order, whose plain values differ; None where all agree."""
    return next((name for name in sorted(own.keys() | saved.keys()) if own.get(name) != saved.get(name)), None)


@contextmanager
def _naming(folder: Path, by: str = "") -> Iterator[None]:
    """Errors of a block with the folder's name in place of the temporary file's."""
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
