"""What can be known of a data set: its files, where they come from, and how its makers cut it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from degp.data.sources import File, Source, WebFolder


@dataclass(frozen=True)
class DataSet:
    """What a data set is, which files it has, and where they come from.

    Attributes:
        description: what is predicted, from what, in a line.
        rows: number of points, over all files.
        features: shape of one point's inputs: (13,) for a table with 13 columns, (3, 32, 32) for colour images.
        folder: where its files lie below a local copy or the cache, with forward slashes.
        source: where its files are downloaded from; None where there is only a local copy.
        homepage: who made it, and what its columns mean.
        licence: its makers' terms, not those of `source` for its copy.
        classes: number of classes; None where targets are real numbers.
        splits: number of points in each split that its makers cut; empty where they cut none.
        other_forms: the same set in other files, which a local copy may have instead.
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
    other_forms: tuple["DataSet", ...] = ()

    def __post_init__(self) -> None:
        unproved = [file.name for file in self.files if file.checksum is None]
        if isinstance(self.source, WebFolder) and unproved:  # an archive is proved as a whole
            raise ValueError(
                f"files to download must have a checksum, but {', '.join(unproved)} of {self.name!r} have none; "
                "give their sha256, or source=None for a local copy only"
            )

    @property
    def forms(self) -> tuple["DataSet", ...]:
        """The record itself, and then its other forms."""
        return (self, *self.other_forms)

    def files_of(self, split: str | None) -> tuple[File, ...]:
        """The files that a split is read from; all of them for None."""
        return tuple(file for file in self.files if split is None or file.split in (None, split))

    def with_form(self, folder: str, files: tuple[File, ...]) -> "DataSet":
        """The same set, which a local copy may also have as these files."""
        other = replace(self, folder=folder, files=files, source=None, other_forms=())
        return replace(self, other_forms=(*self.other_forms, other))
