"""Files from the web, whole and with the right checksum, or not there at all."""

import hashlib
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Protocol, runtime_checkable

from degp.files import new_file


class DataSetError(ValueError):
    """A data set is not to be had, or is not what it should be; the message says why and what to do."""


@dataclass(frozen=True)
class File:
    """A file of a data set: its name in the set's folder, and the checksum of its bytes.

    Without a checksum any bytes are taken from a local copy, and it is for the reader to check what they hold.

    Attributes:
        md5: as its makers publish it, for a file whose sha256 is not known; sha256 comes first.
        split: the split that has this file to itself; None where all splits need it.
        rebuilt: whether a local copy may have other bytes, as where it was rebuilt; a download never may.
    """

    name: str
    sha256: str | None = None
    md5: str | None = None
    split: str | None = None
    rebuilt: bool = False

    @property
    def checksum(self) -> tuple[str, str] | None:
        """Algorithm and digest, such as ("md5", "9fb6…"); None where there is none."""
        known = (("sha256", self.sha256), ("md5", self.md5))
        return next(((algorithm, digest) for algorithm, digest in known if digest), None)


@runtime_checkable
class Source(Protocol):
    """A place on the web that has the files of a data set."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The same place under several addresses, the preferred one first."""
        ...

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        """Puts the files into `folder`, those that are not there already; raises DataSetError where that fails."""
        ...


@dataclass(frozen=True)
class WebFolder:
    """Files one by one, each at a URL of the folder followed by its name."""

    urls: tuple[str, ...]

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        for file in files:
            download([f"{url.rstrip('/')}/{file.name}" for url in self.urls], file, folder)


@dataclass(frozen=True)
class WebArchive:
    """Files in one tar archive, compressed or not, in its folder `inside`; its checksum vouches for them too."""

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
    """The file in `folder`, from the first URL that gives the right bytes; nothing is fetched where it is there."""
    if file.checksum is None:
        raise DataSetError(
            f"{file.name} must have a checksum to be downloaded, but it has none; give its sha256 or md5"
        )
    pooch = _import_pooch()
    failures = []
    for url in urls:
        try:
            return Path(pooch.retrieve(url, ":".join(file.checksum), file.name, folder, progressbar=True))
        except (OSError, ValueError) as error:  # no network, no such page, no room on the disk; another checksum
            failures.append(f"{url} failed ({error})")
    raise DataSetError("; ".join(failures))


def check_file(path: Path, file: File) -> None:
    """Raises DataSetError where what lies at `path` is not `file`."""
    if file.checksum and not is_intact(path, file):
        algorithm, digest = file.checksum
        raise DataSetError(
            f"{path} must have the {algorithm} {digest}, but its {path.stat().st_size} bytes have "
            f"{file_digest(path, algorithm)}: it is damaged, cut short or another version; replace it or take it away"
        )


def is_intact(path: Path, file: File) -> bool:
    """Whether `file` lies at `path` with the right bytes."""
    if not path.is_file() or file.checksum is None:
        return path.is_file()
    algorithm, digest = file.checksum
    return file_digest(path, algorithm) == digest


def file_digest(path: Path, algorithm: str) -> str:
    """The digest of a file's bytes by "sha256" or "md5", in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, algorithm).hexdigest()


def _extract(tar: tarfile.TarFile, member: str, file: File, folder: Path) -> None:
    packed = tar.extractfile(member) if member in tar.getnames() else None
    if packed is None:
        raise DataSetError(f"the archive must have a file {member}, but it has {', '.join(tar.getnames()) or 'none'}")
    with packed, new_file(folder / file.name) as draft:
        draft.write_bytes(packed.read())
        check_file(draft, file)


def _import_pooch() -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        raise DataSetError("pooch, which downloads need, is not installed (pip install 'degp[data]')") from error
    return pooch
