"""The folder of a saved model: tensors as safetensors, everything else as JSON, never pickled.

`model.json` names the file of the tensors by its checksum and is written last: while a model is being replaced, the
folder holds either the old or the new one, complete. From schema 2 on it also has a checksum of its own content.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

import degp
from degp.runtime.files import new_file, new_folder, write_json

__all__ = [
    "METADATA",
    "SCHEMA",
    "ModelError",
    "check_destination",
    "checksum",
    "read_folder",
    "summary",
    "write_folder",
]

SCHEMA = 4
METADATA = "model.json"


class ModelError(ValueError):
    """A model cannot be saved or loaded; the message says why and what to do.

    Example:
        >>> from degp.tabular.saving import load_model
        >>> try:
        ...     model = load_model("houses")
        ... except ModelError as error:
        ...     print(error)
        houses must be a folder that save_model or `degp fit` wrote, but it has no model.json
    """


def write_folder(folder: Path | str, metadata: dict[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Writes a model atomically; an existing one is replaced."""
    folder = check_destination(folder)
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    if (folder / METADATA).exists():
        _write(folder, plain, metadata)
        return folder
    if folder.exists():
        folder.rmdir()  # it is empty
    with new_folder(folder) as draft:
        _write(draft, plain, metadata)
    return folder


def read_folder(folder: Path | str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The content of `model.json`, and the tensors; raises ModelError if they are damaged."""
    metadata = _read_metadata(Path(folder))
    return metadata, _read_tensors(Path(folder), metadata)


def check_destination(folder: Path | str) -> Path:
    """The folder, if a model can be saved there: it is new, or empty, or has a model to be replaced.

    Example:
        >>> check_destination("houses").name
        'houses'
    """
    folder = Path(folder)
    if folder.is_file():
        raise ModelError(f"a model is saved in a folder, but {folder} is a file; choose another name")
    if folder.exists() and not (folder / METADATA).exists() and any(folder.iterdir()):
        raise ModelError(f"{folder} must be new, empty or a model, but it has other files; choose another name")
    return folder


def _write(folder: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Writes the tensors, then `model.json`, which makes them the model; then deletes those of an earlier model."""
    json.dumps(metadata)  # fails here, before anything is written
    content = save(tensors)
    digest = hashlib.sha256(content).hexdigest()
    name = f"model-{digest[:12]}.safetensors"
    with new_file(folder / name) as draft:
        draft.write_bytes(content)
    complete = metadata | {"tensors": name, "sha256": digest}
    write_json(folder / METADATA, complete | {"checksum": checksum(complete)})
    for old in folder.glob("model-*.safetensors"):
        if old.name != name:
            old.unlink()


def _read_metadata(folder: Path) -> dict[str, Any]:
    path = folder / METADATA
    if not path.is_file():
        raise ModelError(f"{folder} must be a folder that save_model or `degp fit` wrote, but it has no {METADATA}")
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        schema = metadata["schema"]
        newer = schema > SCHEMA
        intact = schema < 2 or metadata["checksum"] == checksum(metadata)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} must be as save_model wrote it, but {summary(error)}; fit again") from None
    if newer:
        raise ModelError(f"{path} has schema {schema}, and degp {degp.__version__} reads up to {SCHEMA}; update degp")
    if not intact:
        raise ModelError(f"{path} is damaged or was edited: its checksum does not match its content; copy it again")
    return metadata


def checksum(metadata: Mapping[str, Any]) -> str:
    """sha256 of the content of `model.json` except for this checksum, independent of its layout."""
    content = {name: value for name, value in metadata.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read_tensors(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Tensor]:
    path = folder / Path(str(metadata.get("tensors"))).name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{folder} must contain the tensors of its model, but {summary(error)}; fit again") from None
    if hashlib.sha256(content).hexdigest() != metadata.get("sha256"):
        raise ModelError(
            f"{path} is damaged: its checksum is not the one in {METADATA}; copy the folder again, or fit again"
        )
    try:
        return load(content)
    except SafetensorError as error:
        raise ModelError(f"{path} must be safetensors, but {summary(error)}; fit again") from None


def summary(error: Exception) -> str:
    """The kind of an error and its message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
