"""Predictions for a file of any length, written to a file in the memory of one chunk."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from degp.runtime.files import new_file
from degp.tabular.errors import TableError, require_columns, summed_warnings
from degp.tabular.model import predict_rows, stream_rows
from degp.tabular.saving import Model

__all__ = ["predict_file"]


def predict_file(
    model: Model,
    table: Path,
    out: Path,
    *,
    level: float = 0.9,
    conformal: bool = False,
    id_column: str | None = None,
    chunk_rows: int = 10_000,
) -> int:
    """Writes predictions for a file of any length, atomically, in the memory of one chunk; returns their number.

    Args:
        out: a .csv or .parquet file.
        id_column: a column of the table to copy, as text, in front of the predictions.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> estimator = DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"])
        >>> frame.to_csv("houses.csv", index=False)
        >>> predict_file(Model(estimator, None, {}), Path("houses.csv"), Path("predictions.csv"), level=0.95)
        24
    """
    write = _writer(out)
    if out.exists() and out.samefile(table):
        raise ValueError(f"predictions must not overwrite the table {table}; choose another name for them")
    copied = [] if id_column is None else [id_column]
    chunks = stream_rows(model, table, text=copied, chunk_rows=chunk_rows)
    predictions = (
        _with_columns(chunk, copied, predict_rows(model, chunk, level=level, conformal=conformal)) for chunk in chunks
    )
    with summed_warnings():
        first = next(predictions)  # before a file is created: most errors in a table show in its first rows
        with new_file(out) as draft:
            return write(draft, first, predictions)


def _with_columns(chunk: pd.DataFrame, copied: list[str], predictions: pd.DataFrame) -> pd.DataFrame:
    """Columns of the table, then the predictions."""
    require_columns(copied, list(chunk), where="the table")
    clash = [name for name in copied if name in predictions]
    if clash:
        raise TableError(f"a copied column must not have the name of a prediction, but {clash[0]!r} has; rename it")
    return pd.concat([chunk[copied], predictions], axis=1)


Write = Callable[[Path, pd.DataFrame, Iterator[pd.DataFrame]], int]


def _writer(path: Path) -> Write:
    writers: dict[str, Write] = {".csv": _write_csv, ".parquet": _write_parquet}
    if path.suffix.lower() not in writers:
        raise ValueError(f"predictions are written to a .csv or .parquet file, but this is {path}; choose one of these")
    return writers[path.suffix.lower()]


def _write_csv(path: Path, first: pd.DataFrame, rest: Iterator[pd.DataFrame]) -> int:
    with path.open("w", encoding="utf-8", newline="") as file:
        first.to_csv(file, index=False, float_format="%.9g")
        count = len(first)
        for chunk in rest:
            chunk.to_csv(file, index=False, header=False, float_format="%.9g")
            count += len(chunk)
    return count


def _write_parquet(path: Path, first: pd.DataFrame, rest: Iterator[pd.DataFrame]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(first, preserve_index=False)
    with pq.ParquetWriter(path, table.schema) as file:
        file.write_table(table)
        count = len(first)
        for chunk in rest:
            file.write_table(pa.Table.from_pandas(chunk, schema=table.schema, preserve_index=False))
            count += len(chunk)
    return count
