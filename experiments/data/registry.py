"""Data sets by name: the paths of their files on this machine, downloaded if necessary.

A set is looked up in the local copy that the environment variable DEGP_DATA names, then in the cache, and is otherwise
downloaded into the cache. Both have the same layout, the original files in the record's `folder`:
`$DEGP_DATA/uci/bostonHousing/data/data.txt`. A local copy may have the set in another format, and only the splits that
are needed; a download is complete.
"""

import difflib
import os
from pathlib import Path
from typing import Any

from experiments.data.dataset import DataSet
from experiments.data.records import DATA_SETS
from experiments.data.sources import DataSetError, check_file, is_intact

__all__ = [
    "LOCAL_COPY",
    "cache",
    "check_split",
    "data_set",
    "describe_all",
    "local_copy",
    "locate",
    "locate_files",
]

LOCAL_COPY = "DEGP_DATA"


def locate(name: str, split: str | None = None) -> Path:
    """The folder with the verified files of a data set or of one split; downloads them if necessary."""
    return locate_files(name, split)[0].parent


def locate_files(name: str, split: str | None = None) -> tuple[Path, ...]:
    """The files of a split, or of the whole set, in the order of the record, each verified by its checksum.

    All are of one format: the record's own, or another one that the local copy has.
    """
    record = data_set(name)
    check_split(record, split)
    for variant in record.formats:
        local = _folder_of(variant, local_copy())
        if local and not _missing(variant, local, split):
            return _verified(variant, local, split)
    return _cached(record, split)


def data_set(name: str) -> DataSet:
    """The record of a data set."""
    if name not in DATA_SETS:
        near = difflib.get_close_matches(name, DATA_SETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "for your own arrays, use degp.data.as_batch"
        raise DataSetError(f"a data set must be one of {', '.join(DATA_SETS)}, but it is {name!r}; {hint}")
    return DATA_SETS[name]


def check_split(record: DataSet, split: str | None) -> None:
    """Raises DataSetError if the set has no split of that name; None is the whole set."""
    if split is not None and split not in record.splits:
        raise DataSetError(
            f"a split of {record.name!r} must be one of {', '.join(record.splits) or 'none'}, but it is {split!r}; "
            "choose one of these, or select rows of one with degp.data.subset"
        )


def describe_all() -> list[dict[str, Any]]:
    """One plain dict per data set, for a table or JSON; `path` is None if the set is not on this machine.

    `here` lists the splits found in `path`. Files are not read; `locate` verifies their checksums.
    """
    return [_describe(record) for record in DATA_SETS.values()]


def local_copy() -> Path | None:
    """The folder that the environment variable DEGP_DATA names; None if it is not set."""
    return Path(os.environ[LOCAL_COPY]).expanduser() if os.environ.get(LOCAL_COPY) else None


def cache() -> Path:
    """The folder for downloads: `degp` in $XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "degp"


def _verified(record: DataSet, folder: Path, split: str | None) -> tuple[Path, ...]:
    files = record.files_of(split)
    for file in files:
        if not file.rebuilt:
            check_file(folder / file.name, file)
    return tuple(folder / file.name for file in files)


def _cached(record: DataSet, split: str | None) -> tuple[Path, ...]:
    folder = cache() / record.folder
    files = record.files_of(split)
    if not all(is_intact(folder / file.name, file) for file in files):
        _download(record, folder, split)
    return tuple(folder / file.name for file in files)


def _download(record: DataSet, folder: Path, split: str | None) -> None:
    try:
        if record.source is None:
            raise DataSetError("it has no download address")
        record.source.fetch(record.files, folder)
    except DataSetError as error:
        raise DataSetError(_advice(record, split, reason=str(error))) from error


def _advice(record: DataSet, split: str | None, reason: str) -> str:
    names = ", ".join(file.name for file in record.files_of(split))
    origin = " or ".join(record.source.urls) if record.source else record.homepage
    return (
        f"data set {record.name!r} must be in a local copy, in the cache or on the web, but {_state(record, split)}, "
        f"{cache() / record.folder} is not complete and intact, and the download failed: {reason}; without a "
        f"network, copy {names} from {origin} to <folder>/{record.folder} and set {LOCAL_COPY}=<folder>"
    )


def _state(record: DataSet, split: str | None) -> str:
    folder = _folder_of(record, local_copy())
    if folder is None:
        return f"{LOCAL_COPY} is not set"
    return f"the folder {folder} of {LOCAL_COPY} has no {' and no '.join(_missing(record, folder, split))}"


def _describe(record: DataSet) -> dict[str, Any]:
    path, here = _presence(record)
    return {
        "name": record.name,
        "description": record.description,
        "rows": record.rows,
        "features": list(record.features),
        "classes": record.classes,
        "splits": dict(record.splits),
        "files": {file.name: file.sha256 for file in record.files},
        "source": list(record.source.urls) if record.source else [],
        "homepage": record.homepage,
        "licence": record.licence,
        "path": str(path) if path else None,
        "here": here,
    }


def _presence(record: DataSet) -> tuple[Path | None, list[str]]:
    """The first folder that has a split or the whole set, and the splits found there."""
    places = [(variant, _folder_of(variant, local_copy())) for variant in record.formats]
    for variant, folder in [*places, (record, cache() / record.folder)]:
        if folder is None:
            continue
        here = [split for split in record.splits if not _missing(variant, folder, split)]
        if here or not _missing(variant, folder, None):
            return folder, here
    return None, []


def _missing(record: DataSet, folder: Path, split: str | None) -> list[str]:
    return [file.name for file in record.files_of(split) if not (folder / file.name).is_file()]


def _folder_of(record: DataSet, root: Path | None) -> Path | None:
    return root / record.folder if root else None
