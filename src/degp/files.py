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


def _form(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _flush(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
