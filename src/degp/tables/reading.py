"""Files at the door: CSV and Parquet to data frames, whole or in chunks, with clear words where that cannot be."""

import csv
import gzip
import io
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from degp.tables.cells import as_number
from degp.tables.errors import TableError, listed, require_columns

SEPARATORS = (",", ";", "\t", "|")
CHUNK_ROWS = 50_000  # 20 MB where there are 50 columns of numbers


def read_table(path: Path | str, columns: Sequence[str] | None = None, *, text: Iterable[str] = ()) -> pd.DataFrame:
    """The whole table, or the named columns of it.

    A column of a CSV file is text throughout or nowhere: where one part of it could pass for numbers and another
    cannot, "01" stays "01". The arguments are those of `stream_table`.
    """
    text = list(text)
    parts = list(stream_table(path, columns, text=text))
    mixed = [name for name in parts[0] if name not in text and _text_in_places(parts, name)]
    if mixed and isinstance(_open(Path(path)), _Delimited):
        del parts
        return read_table(path, columns, text=[*text, *mixed])
    return pd.concat(parts, ignore_index=True)


def stream_table(
    path: Path | str, columns: Sequence[str] | None = None, *, chunk_rows: int = CHUNK_ROWS, text: Iterable[str] = ()
) -> Iterator[pd.DataFrame]:
    """The table in chunks of at most `chunk_rows` rows, with rows numbered throughout; memory is that of one chunk.

    Args:
        path: a .csv or .tsv file (also .gz) in UTF-8 with a header, or a .parquet file.
        columns: those to read; all by default.
        chunk_rows: rows of a chunk.
        text: columns of a CSV file to leave as they are written. Pass `Preprocessing.text_columns` when reading new
            rows: a chunk in which a category happens to look like a number is then read like any other.
    """
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1, but it is {chunk_rows}")
    table = _open(Path(path))
    names = _checked(table.header(), path)
    if columns is not None:
        require_columns(columns, names, where=str(path))
    return _numbered(_told(table.chunks(columns, chunk_rows, set(text) & set(names)), path), path)


@dataclass(frozen=True)
class _Delimited:
    path: Path
    separators: tuple[str, ...]

    def header(self) -> list[str]:
        """Names as the first line has them; an empty one is called as pandas would."""
        with _readable(self.path), self._text() as handle:
            names = next((row for row in csv.reader(handle, **self._dialect()) if row), [])
        if names and all(as_number(name) is not None for name in names):
            raise TableError(
                f"the first line of {self.path} must name the columns, but it has numbers only: {listed(names)}; "
                f"add a header line"
            )
        return [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]

    def chunks(self, columns: Sequence[str] | None, rows: int, text: set[str]) -> Iterator[pd.DataFrame]:
        dialect = self._dialect()
        reader = pd.read_csv(
            self.path,
            names=self.header(),
            header=0,
            usecols=columns if columns is None else list(columns),
            dtype=dict.fromkeys(text, "str"),
            chunksize=rows,
            sep=dialect["delimiter"],
            decimal="," if dialect["delimiter"] == ";" else ".",  # such files come from where 1,5 is a number
            skipinitialspace=True,
            index_col=False,
            encoding="utf-8-sig",
            low_memory=False,
        )
        with reader:
            for chunk in reader:
                yield chunk if columns is None else chunk[list(columns)]

    def _dialect(self) -> dict[str, Any]:
        """The separator that gives the first line most fields; the earlier one where two give as many."""
        with _readable(self.path), self._text() as handle:
            line = next((line for line in handle if line.strip()), "")
        separator = max(self.separators, key=lambda s: len(next(csv.reader([line], delimiter=s), [])))
        return {"delimiter": separator, "skipinitialspace": True}

    def _text(self) -> io.TextIOWrapper:
        squeezed = self.path.suffix.lower() == ".gz"
        content = gzip.open(self.path) if squeezed else self.path.open("rb")
        return io.TextIOWrapper(content, encoding="utf-8-sig", newline="")


@dataclass(frozen=True)
class _Parquet:
    path: Path

    def header(self) -> list[str]:
        with _readable(self.path), self._file() as file:
            return list(file.schema_arrow.names)

    def chunks(self, columns: Sequence[str] | None, rows: int, text: set[str]) -> Iterator[pd.DataFrame]:
        names = self.header() if columns is None else list(columns)
        with self._file() as file:
            for batch in file.iter_batches(batch_size=rows, columns=names):
                yield batch.to_pandas(ignore_metadata=True)[names]

    def _file(self) -> Any:
        try:
            import pyarrow.parquet
        except ModuleNotFoundError:
            raise ImportError(f"reading {self.path} needs pyarrow: pip install 'degp[sklearn]'") from None
        return pyarrow.parquet.ParquetFile(self.path)


def _open(path: Path) -> _Delimited | _Parquet:
    if not path.is_file():
        raise TableError(f"there must be a table at {path}, but there is no such file; check the path")
    if not path.stat().st_size:
        raise TableError(f"{path} must have a header and rows, but the file is empty; export the table again")
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return _Delimited(path, SEPARATORS)
    if name.endswith((".tsv", ".tsv.gz")):
        return _Delimited(path, ("\t",))
    if name.endswith(".parquet"):
        return _Parquet(path)
    raise TableError(f"a table must be a .csv, .tsv (also .gz) or .parquet file, but it is {path}; save it as one")


def _checked(names: list[str], path: Path | str) -> list[str]:
    if not names:
        raise TableError(f"{path} must have a header that names its columns, but it has no columns")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(
            f"columns must have different names, but {path} has {listed(twice)} more than once; rename them"
        )
    return names


def _text_in_places(parts: Sequence[pd.DataFrame], name: str) -> bool:
    return len({part[name].dtype.kind == "O" for part in parts}) > 1


def _numbered(chunks: Iterator[pd.DataFrame], path: Path | str) -> Iterator[pd.DataFrame]:
    count = 0
    for chunk in chunks:
        chunk.index = pd.RangeIndex(count, count + len(chunk))
        count += len(chunk)
        if len(chunk):
            yield chunk
    if not count:
        raise TableError(f"{path} must have at least one row under its header, but it has none; add rows to it")


def _told(chunks: Iterator[pd.DataFrame], path: Path | str) -> Iterator[pd.DataFrame]:
    """The chunks; what goes wrong between two of them is told as `_readable` tells it."""
    while True:
        with _readable(path):
            chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk


@contextmanager
def _readable(path: Path | str) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields beyond the header would be lost
            yield
    except TableError:
        raise
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} must be UTF-8 text, but has the byte 0x{error.object[error.start]:02x} ({error.reason}); save it "
            f"as UTF-8, for example by: iconv -f latin1 -t utf-8"
        ) from None
    except pd.errors.ParserWarning:
        raise TableError(f"each line of {path} must have as many fields as the header, but some have more") from None
    except (ValueError, NotImplementedError, OSError, EOFError, csv.Error, zlib.error) as error:
        said = re.sub(r"\s+", " ", str(error)).removeprefix("Error tokenizing data. C error: ")
        raise TableError(f"{path} must be a readable table, but: {said}; check the file") from None
