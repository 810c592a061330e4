"""Files from the web, complete and with the right checksum, or not at all."""

import hashlib
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Protocol, runtime_checkable

from degp.runtime.files import new_file

__all__ = [
    "DataSetError",
    "File",
    "Source",
    "WebArchive",
    "WebFolder",
    "check_file",
    "download",
    "file_digest",
    "is_intact",
]


class DataSetError(ValueError):
    """A data set is unavailable or damaged; the message says why and what to do."""


@dataclass(frozen=True)
class File:
    """A file of a data set: its name in the set's folder, and the checksum of its bytes.

    Without a checksum, a local copy may have any bytes, and the reader checks the contents.

    Attributes:
        md5: as published by the authors, for a file whose sha256 is unknown; sha256 takes precedence.
        split: the only split that needs this file; None if all splits need it.
        rebuilt: whether a local copy may have other bytes because it was rebuilt; a download never may.
    """

    name: str
    sha256: str | None = None
    md5: str | None = None
    split: str | None = None
    rebuilt: bool = False

    @property
    def checksum(self) -> tuple[str, str] | None:
        """Algorithm and digest, such as ("md5", "9fb6…"); None if there is none."""
        known = (("sha256", self.sha256), ("md5", self.md5))
        return next(((algorithm, digest) for algorithm, digest in known if digest), None)


@runtime_checkable
class Source(Protocol):
    """A place on the web with the files of a data set."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Mirrors of the same place, the preferred one first."""
        ...

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        """Downloads the files that are missing in `folder`; raises DataSetError on failure."""
        ...


@dataclass(frozen=True)
class WebFolder:
    """Separate files, each at the URL of the folder followed by its name."""

    urls: tuple[str, ...]

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        for file in files:
            download([f"{url.rstrip('/')}/{file.name}" for url in self.urls], file, folder)


@dataclass(frozen=True)
class WebArchive:
    """Files in the folder `inside` of a tar archive, compressed or not; its checksum covers them."""

    urls: tuple[str, ...]
    sha256: str | None
    inside: str
    md5: str | None = None

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        with TemporaryDirectory(prefix="degp-") as draft:
            archive = download(self.urls, File("archive", self.sha256, self.md5), Path(draft))
            with tarfile.open(archive) as tar:
                for file in files:
                    _extract(tar, f"{self.inside}/{file.name}", file, folder)


def download(urls: Sequence[str], file: File, folder: Path) -> Path:
    """The file in `folder`, downloaded if missing, from the first URL that returns the right bytes."""
    if file.checksum is None:
        raise DataSetError(
            f"{file.name} must have a checksum to be downloaded, but it has none; give its sha256 or md5"
        )
    pooch = _import_pooch()
    failures = []
    for url in urls:
        try:
            return Path(pooch.retrieve(url, ":".join(file.checksum), file.name, folder, progressbar=True))
        except (OSError, ValueError) as error:  # no network, no such page, disk full; wrong checksum
            failures.append(f"{url} failed ({error})")
    raise DataSetError("; ".join(failures))


def check_file(path: Path, file: File) -> None:
    """Raises DataSetError if the file at `path` does not have the checksum of `file`."""
    if file.checksum and not is_intact(path, file):
        algorithm, digest = file.checksum
        raise DataSetError(
            f"{path} must have the {algorithm} {digest}, but its {path.stat().st_size} bytes have "
            f"{file_digest(path, algorithm)}: it is damaged, truncated or another version; replace it or remove it"
        )


def is_intact(path: Path, file: File) -> bool:
    """Whether the file at `path` exists and has the checksum of `file`."""
    if not path.is_file() or file.checksum is None:
        return path.is_file()
    algorithm, digest = file.checksum
    return file_digest(path, algorithm) == digest


def file_digest(path: Path, algorithm: str) -> str:
    """The digest of a file's bytes by "sha256" or "md5", in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, algorithm).hexdigest()


def _extract(tar: tarfile.TarFile, member: str, file: File, folder: Path) -> None:
    source = tar.extractfile(member) if member in tar.getnames() else None
    if source is None:
        raise DataSetError(f"the archive must have a file {member}, but it has {', '.join(tar.getnames()) or 'none'}")
    with source, new_file(folder / file.name) as draft:
        draft.write_bytes(source.read())
        check_file(draft, file)


def _import_pooch() -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        raise DataSetError("downloads need pooch, which is not installed (pip install 'degp[data]')") from error
    return pooch
