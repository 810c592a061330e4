"""The description of a data set: its files, where they come from, and its official splits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from experiments.data.sources import File, Source, WebFolder

__all__ = ["DataSet"]


@dataclass(frozen=True)
class DataSet:
    """A data set: its contents, its files, and where they come from.

    Attributes:
        description: one line: what is predicted from what.
        rows: number of points, over all files.
        features: shape of the inputs of one point: (13,) for a table with 13 columns, (3, 32, 32) for colour images.
        folder: of its files, relative to a local copy or the cache, with forward slashes.
        source: where its files are downloaded from; None if there are only local copies.
        homepage: its authors, and the meaning of its columns.
        licence: the terms of the authors, not those of `source`.
        classes: number of classes; None for regression.
        splits: number of points in each official split; empty if there is none.
        other_formats: the same set in other files, which a local copy may have instead.
    """

    name: str
    description: str
    rows: int
    features: tuple[int, ...]
    folder: str
    files: tuple[File, ...]
    source: Source | None
    homepage: str
    licence: str
    classes: int | None = None
    splits: Mapping[str, int] = field(default_factory=dict)
    other_formats: tuple["DataSet", ...] = ()

    def __post_init__(self) -> None:
        unverified = [file.name for file in self.files if file.checksum is None]
        if isinstance(self.source, WebFolder) and unverified:  # the checksum of an archive covers its files
            raise ValueError(
                f"files to download must have a checksum, but {', '.join(unverified)} of {self.name!r} have none; "
                "give their sha256, or source=None for a local copy only"
            )

    @property
    def formats(self) -> tuple["DataSet", ...]:
        """The record itself, and then its other formats."""
        return (self, *self.other_formats)

    def files_of(self, split: str | None) -> tuple[File, ...]:
        """The files of a split; all files for None."""
        return tuple(file for file in self.files if split is None or file.split in (None, split))

    def with_format(self, folder: str, files: tuple[File, ...]) -> "DataSet":
        """The same set with another format, which a local copy may have instead."""
        other = replace(self, folder=folder, files=files, source=None, other_formats=())
        return replace(self, other_formats=(*self.other_formats, other))
