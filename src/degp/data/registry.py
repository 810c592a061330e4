"""Data sets by name: where their files lie on this machine, downloaded where need be.

A set is looked for in the local copy that the environment variable DEGP_DATA names, then in the cache, and is
downloaded into the cache where it is in neither. Both are laid out alike, the original files in the record's `folder`:
`$DEGP_DATA/uci/bostonHousing/data/data.txt`.
"""

import difflib
import os
from pathlib import Path
from typing import Any

from degp.data.records import DATA_SETS, DataSet
from degp.data.sources import DataSetError, check_file, is_intact

LOCAL_COPY = "DEGP_DATA"


def locate(name: str) -> Path:
    """The folder with the files of a data set, each checked against its sha256; downloads them where need be."""
    record = data_set(name)
    local = _folder_of(record, local_copy())
    if local and not _missing(record, local):
        for file in record.files:
            check_file(local / file.name, file)
        return local
    return _cached(record)


def data_set(name: str) -> DataSet:
    """The record of a data set."""
    if name not in DATA_SETS:
        near = difflib.get_close_matches(name, DATA_SETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "your own data need no name: see as_batch"
        raise DataSetError(f"a data set must be one of {', '.join(DATA_SETS)}, but it is {name!r}; {hint}")
    return DATA_SETS[name]


def describe_all() -> list[dict[str, Any]]:
    """One plain dict for each data set, fit for a table or JSON; `path` is None where it is yet to be downloaded.

    Says what is there without reading it: checksums are for `locate`.
    """
    return [_describe(record) for record in DATA_SETS.values()]


def local_copy() -> Path | None:
    """The folder that the environment variable DEGP_DATA names; None where it is not set."""
    return Path(os.environ[LOCAL_COPY]).expanduser() if os.environ.get(LOCAL_COPY) else None


def cache() -> Path:
    """The folder for downloads: `degp` in $XDG_CACHE_HOME, or in ~/.cache where that is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "degp"


def _cached(record: DataSet) -> Path:
    folder = cache() / record.folder
    if not all(is_intact(folder / file.name, file) for file in record.files):
        _download(record, folder)
    return folder


def _download(record: DataSet, folder: Path) -> None:
    try:
        if record.source is None:
            raise DataSetError("there is no address to download it from")
        record.source.fetch(record.files, folder)
    except DataSetError as error:
        raise DataSetError(_advice(record, reason=str(error))) from error


def _advice(record: DataSet, reason: str) -> str:
    names = ", ".join(file.name for file in record.files)
    origin = " or ".join(record.source.urls) if record.source else record.homepage
    return (
        f"data set {record.name!r} must be in a local copy, in the cache or on the web, but {_state(record)}, "
        f"{cache() / record.folder} is not complete and intact, and the download failed: {reason}; where there "
        f"is no network, copy {names} from {origin} to <folder>/{record.folder} and set {LOCAL_COPY}=<folder>"
    )


def _state(record: DataSet) -> str:
    folder = _folder_of(record, local_copy())
    if folder is None:
        return f"{LOCAL_COPY} is not set"
    return f"the folder {folder} of {LOCAL_COPY} has no {' and no '.join(_missing(record, folder))}"


def _describe(record: DataSet) -> dict[str, Any]:
    folders = [_folder_of(record, root) for root in (local_copy(), cache())]
    present = [str(folder) for folder in folders if folder and not _missing(record, folder)]
    return {
        "name": record.name,
        "description": record.description,
        "rows": record.rows,
        "features": list(record.features),
        "files": {file.name: file.sha256 for file in record.files},
        "source": list(record.source.urls) if record.source else [],
        "homepage": record.homepage,
        "licence": record.licence,
        "path": present[0] if present else None,
    }


def _missing(record: DataSet, folder: Path) -> list[str]:
    return [file.name for file in record.files if not (folder / file.name).is_file()]


def _folder_of(record: DataSet, root: Path | None) -> Path | None:
    return root / record.folder if root else None
