"""CSV, Excel and Parquet files as data frames, whole or in chunks; a file that cannot be read raises a TableError."""

import codecs
import csv
import gzip
import io
import re
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from degp.tabular.cells import parse_number
from degp.tabular.errors import TableError, TableWarning, quoted, require_columns

__all__ = ["CHUNK_ROWS", "SEPARATORS", "Names", "numbered", "read_table", "stream_table"]

SEPARATORS = (",", ";", "\t", "|")
WINDOWS = "cp1252"
BLOCK = 1 << 20  # bytes
CHUNK_ROWS = 50_000  # 20 MB for 50 columns of numbers
Names = Callable[[int], list[str]]  # of the columns of a file without a header, from their number


def numbered(count: int) -> list[str]:
    """The columns of a file without a header, named by their places: "1", "2", …"""
    return [str(place) for place in range(1, count + 1)]


def read_table(
    path: Path | str, columns: Sequence[str] | None = None, *, text: Iterable[str] = (), names: Names | None = None
) -> pd.DataFrame:
    """The whole table, or the named columns of it.

    A column of a CSV file is read as text if any of its chunks is text, so that "01" stays "01". The arguments are
    those of `stream_table`.

    Example:
        >>> pd.DataFrame({"size": [50, 80], "price": [1.5, 2.0]}).to_csv("houses.csv", index=False)
        >>> read_table("houses.csv", ["price"])["price"].tolist()
        [1.5, 2.0]
    """
    text = list(text)
    parts = list(stream_table(path, columns, text=text, names=names))
    mixed = [name for name in parts[0] if name not in text and _is_mixed(parts, name)]
    if mixed and isinstance(_open(Path(path), names), _Delimited):
        del parts
        return read_table(path, columns, text=[*text, *mixed], names=names)
    return pd.concat(parts, ignore_index=True)


def stream_table(
    path: Path | str,
    columns: Sequence[str] | None = None,
    *,
    chunk_rows: int = CHUNK_ROWS,
    text: Iterable[str] = (),
    names: Names | None = None,
) -> Iterator[pd.DataFrame]:
    """The table in chunks of at most `chunk_rows` rows, numbered consecutively; needs the memory of one chunk.

    Args:
        path: a .csv or .tsv file (also .gz) in UTF-8, UTF-16 or Windows-1252, the first sheet of an .xlsx file, or a
            .parquet file.
        columns: those to read; all by default.
        chunk_rows: rows per chunk.
        text: columns of a CSV file to read as text. Pass `Preprocessing.text_columns` when reading new rows, so that
            a chunk whose categories look like numbers is read like the others.
        names: for a CSV or Excel file without a header, such as `numbered`.

    Example:
        >>> pd.DataFrame({"price": range(5)}).to_csv("houses.csv", index=False)
        >>> sum(int(chunk["price"].sum()) for chunk in stream_table("houses.csv", chunk_rows=2))
        10
    """
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1, but it is {chunk_rows}")
    table = _open(Path(path), names)
    header = _checked_names(table.header(), path)
    if columns is not None:
        require_columns(columns, header, where=str(path))
    return _numbered(_checked_chunks(table.chunks(columns, chunk_rows, set(text) & set(header)), path), path)


@dataclass(frozen=True)
class _Delimited:
    path: Path
    separators: tuple[str, ...]
    names: Names | None
    encoding: str

    def header(self) -> list[str]:
        with _reading(self.path), self._text() as handle:
            first = next((row for row in csv.reader(handle, **self._dialect()) if row), [])
        return _header(first, self.names, self.path)

    def chunks(self, columns: Sequence[str] | None, rows: int, text: set[str]) -> Iterator[pd.DataFrame]:
        dialect = self._dialect()
        if self.encoding == WINDOWS:
            message = f"{self.path} is not UTF-8 text; it is read as Windows-1252, the encoding of Western Europe"
            warnings.warn(message, TableWarning, stacklevel=2)
        reader = pd.read_csv(
            self.path,
            names=self.header(),
            header=0 if self.names is None else None,
            usecols=columns if columns is None else list(columns),
            dtype=dict.fromkeys(text, "str"),
            chunksize=rows,
            sep=dialect["delimiter"],
            decimal="," if dialect["delimiter"] == ";" else ".",  # such files use the decimal comma
            skipinitialspace=True,
            index_col=False,
            encoding=self.encoding,
            low_memory=False,
        )
        with reader:
            for chunk in reader:
                yield chunk if columns is None else chunk[list(columns)]

    def _dialect(self) -> dict[str, Any]:
        """The separator that splits the first line into the most fields; of equals, the earlier."""
        with _reading(self.path), self._text() as handle:
            line = next((line for line in handle if line.strip()), "")
        separator = max(self.separators, key=lambda s: len(next(csv.reader([line], delimiter=s), [])))
        return {"delimiter": separator, "skipinitialspace": True}

    def _text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(_binary(self.path), encoding=self.encoding, newline="")


@dataclass(frozen=True)
class _Excel:
    """The first sheet of a workbook, which is read as a whole."""

    path: Path
    names: Names | None

    def header(self) -> list[str]:
        first = self._read(nrows=1)
        cells = ["" if pd.isna(cell) else str(cell) for cell in (first.iloc[0] if len(first) else ())]
        return _header(cells, self.names, self.path)

    def chunks(self, columns: Sequence[str] | None, rows: int, text: set[str]) -> Iterator[pd.DataFrame]:
        with _reading(self.path), self._workbook() as workbook:
            sheets = workbook.sheet_names
        if len(sheets) > 1:
            message = f"{self.path} has {len(sheets)} sheets, and the first, {sheets[0]!r}, is read"
            warnings.warn(message, TableWarning, stacklevel=2)
        header = self.header()
        skipped = 1 if self.names is None else 0
        frame = self._read(skiprows=skipped, names=header, dtype=dict.fromkeys(text, "str"))
        for start in range(0, len(frame), rows):
            yield frame.iloc[start : start + rows][header if columns is None else list(columns)].copy()

    def _read(self, **options: Any) -> pd.DataFrame:
        with _reading(self.path), self._workbook() as workbook:
            return pd.read_excel(workbook, header=None, **options)

    def _workbook(self) -> pd.ExcelFile:
        try:
            import openpyxl  # noqa: F401
        except ModuleNotFoundError:
            raise ImportError(f"reading {self.path} needs openpyxl: pip install openpyxl, or save it as .csv") from None
        return pd.ExcelFile(self.path, engine="openpyxl")


@dataclass(frozen=True)
class _Parquet:
    path: Path

    def header(self) -> list[str]:
        with _reading(self.path), self._file() as file:
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


def _open(path: Path, names: Names | None) -> _Delimited | _Excel | _Parquet:
    if not path.is_file():
        raise TableError(f"there must be a table at {path}, but there is no such file; check the path")
    if not path.stat().st_size:
        raise TableError(f"{path} must have a header and rows, but the file is empty; export the table again")
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return _Delimited(path, SEPARATORS, names, _encoding(path))
    if name.endswith((".tsv", ".tsv.gz")):
        return _Delimited(path, ("\t",), names, _encoding(path))
    if name.endswith(".xlsx"):
        return _Excel(path, names)
    if name.endswith(".parquet"):
        return _Parquet(path)
    raise TableError(
        f"a table must be a .csv, .tsv (also .gz), .xlsx or .parquet file, but it is {path}; save it as one"
    )


def _binary(path: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _encoding(path: Path) -> str:
    """UTF-8; UTF-16 if the file says so; Windows-1252, as of Excel, if it is no UTF-8."""
    with _reading(path), _binary(path) as content:
        if content.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        content.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while block := content.read(BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return WINDOWS
    return "utf-8-sig"


def _header(first: list[str], names: Names | None, path: Path) -> list[str]:
    """Names from the first line, or from its number of fields; an empty name becomes the one that pandas gives it."""
    if names is not None:
        return names(len(first))
    if first and all(parse_number(name) is not None for name in first):
        raise TableError(
            f"the first line of {path} must name the columns, but it has numbers only: {quoted(first)}; "
            f"add a header line, or fit with --header none (in Python, names=numbered)"
        )
    return [name.strip() or f"Unnamed: {i}" for i, name in enumerate(first)]


def _checked_names(names: list[str], path: Path | str) -> list[str]:
    if not names:
        raise TableError(f"{path} must have a header that names its columns, but it has no columns")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise TableError(
            f"columns must have different names, but {path} has {quoted(repeated)} more than once; rename them"
        )
    return names


def _is_mixed(parts: Sequence[pd.DataFrame], name: str) -> bool:
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


def _checked_chunks(chunks: Iterator[pd.DataFrame], path: Path | str) -> Iterator[pd.DataFrame]:
    """The chunks; a failure to read one raises a TableError."""
    while True:
        with _reading(path):
            chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk


ADVICE = "check the file: lines above the header, and separators outside quotes, are the usual reasons"
UNREADABLE = (
    ValueError,
    NotImplementedError,
    OSError,
    EOFError,
    KeyError,  # openpyxl, for an archive that is no workbook
    csv.Error,
    zlib.error,
    zipfile.BadZipFile,
)


@contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    """Turns errors of pandas, pyarrow and the file system into TableErrors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields beyond the header would be lost
            yield
    except TableError:
        raise
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} must be text in UTF-8 or Windows-1252, but has the byte 0x{error.object[error.start]:02x} "
            f"({error.reason}); save it as UTF-8"
        ) from None
    except pd.errors.ParserWarning:
        raise TableError(
            f"each line of {path} must have as many fields as the header, but some have more; {ADVICE}"
        ) from None
    except UNREADABLE as error:
        message = re.sub(r"\s+", " ", str(error)).removeprefix("Error tokenizing data. C error: ").strip()
        raise TableError(f"{path} must be a readable table, but: {message}; {ADVICE}") from None
