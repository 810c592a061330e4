"""Preprocessing of a table: the encodings of all columns, fitted once, saved as JSON and applied to new rows."""

import dataclasses
import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from degp.tabular.cells import filled_cells, to_numbers
from degp.tabular.columns import (
    KINDS,
    MAX_CATEGORIES,
    RECORDS,
    CategoricalColumn,
    Column,
    NumericColumn,
    PlainColumn,
    Scale,
)
from degp.tabular.errors import TableError, TableWarning, quoted, require_columns
from degp.tabular.kinds import kind_of, reason_to_doubt, reason_to_drop
from degp.tabular.numerals import Numerals

__all__ = ["EncodedRows", "Preprocessing"]

SCHEMA = 1


@dataclass(frozen=True)
class Preprocessing:
    """The map from a table's rows to numbers, fitted on training rows.

    Attributes:
        columns: the encodings, in the order of the output.
        notes: one sentence per column about what was done.
        ignored: columns that training had and did not use, the target among them.
        header: whether tables have one; without it, columns are named by their places, "1", "2", …

    Example:
        >>> frame = pd.DataFrame({"size": [50, 80, 65], "colour": ["red", "blue", "red"], "price": [1.5, 2.0, 1.8]})
        >>> preprocessing = Preprocessing.fit(frame, "price")
        >>> inputs = preprocessing.transform(pd.DataFrame({"size": [70], "colour": ["blue"]}))
        >>> inputs.shape == (1, len(preprocessing.features))
        True
    """

    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    header: bool = True

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        target: str | Sequence[str] | None = None,
        *,
        kinds: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
        max_categories: int = MAX_CATEGORIES,
    ) -> "Preprocessing":
        """From training rows; those without a target are ignored.

        Args:
            frame: one row per point.
            target: the column to predict, or several, which are left out.
            kinds: overrides the inferred kinds of columns: numeric, boolean, categorical or date.
            drop: columns to leave out.
            max_categories: how many categories of a column get a feature of their own.
        """
        targets = [target] if isinstance(target, str) else list(target or ())
        _check_frame(frame, [*targets, *drop], kinds or {})
        rows = frame.drop(columns=targets)[frame[targets].notna().all(axis=1)]
        if len(rows) < 2:
            raise TableError(f"there must be at least two rows to learn from, but there is {len(rows)}; add rows")
        fitted = [
            _Dropped(name, "as requested")
            if name in drop
            else _fit_column(rows[name], (kinds or {}).get(name), max_categories)
            for name in rows
        ]
        columns = tuple(column for column in fitted if not isinstance(column, _Dropped))
        notes = tuple(_note(column, rows[column.name]) for column in fitted)
        if not columns:
            raise TableError(
                f"there must be a column to learn from, but none is left: {'; '.join(notes) or 'no others'}"
            )
        dropped = [column.name for column in fitted if isinstance(column, _Dropped)]
        return cls(columns, notes, (*targets, *dropped))

    @classmethod
    def plain(cls, frame: pd.DataFrame) -> "Preprocessing":
        """Of a table that has finite numbers only: every column as it is, none left out."""
        columns = tuple(PlainColumn(name, float(frame[name].median())) for name in _column_names(frame))
        return cls(columns, tuple(f"{column.name!r}: {column.describe()}" for column in columns))

    def ignoring(self, name: str | None) -> "Preprocessing":
        """The same, for tables that may have one more column: the target."""
        if name is None or name in (*self.names, *self.ignored):
            return self
        return dataclasses.replace(self, ignored=(name, *self.ignored))

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers as they are."""
        return all(isinstance(column, PlainColumn) for column in self.columns)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the D outputs."""
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def groups(self) -> tuple[int, ...]:
        """The group of each of the D outputs, numbered from 0; those of one group share their relevance."""
        groups: list[int] = []
        for column in self.columns:
            start = max(groups, default=-1) + 1
            groups += [start + group for group in column.groups]
        return tuple(groups)

    @property
    def indicators(self) -> tuple[int, ...]:
        """Places of the indicators of missing cells among the D outputs."""
        ends = itertools.accumulate(len(column.features) for column in self.columns)
        return tuple(end - 1 for column, end in zip(self.columns, ends, strict=True) if column.indicator)

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that new tables must have."""
        return tuple(column.name for column in self.columns)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that `read_table` and `stream_table` should read as text."""
        return tuple(column.name for column in self.columns if _is_text(column))

    def transform(self, frame: pd.DataFrame) -> Float[np.ndarray, "N D"]:
        """Finite numbers, one row per row of the frame; the order of its columns is irrelevant.

        They are float32, and plain numbers float64.

        Raises TableError if a column is missing, or if a cell is not of the column's kind. Issues TableWarnings that
        count unseen categories and unexpected missing cells, and about columns that training did not have.
        """
        require_columns(self.names, _column_names(frame), where="the table")
        extra = [name for name in frame if name not in self.names and name not in self.ignored]
        if extra:
            message = f"the table has columns that training did not have: {quoted(extra)}; they are ignored"
            warnings.warn(message, TableWarning, stacklevel=2)
        outputs = np.empty((len(frame), len(self.features)), dtype=np.float64 if self.is_plain else np.float32)
        start = 0
        for column in self.columns:
            width = len(column.features)
            outputs[:, start : start + width] = column.encode(frame[column.name])
            start += width
        return outputs

    def encode(self, frame: pd.DataFrame) -> "EncodedRows":
        """What `transform` computes, for the estimators: they learn from it which outputs belong together."""
        return EncodedRows(self.transform(frame), self)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dump`; numbers come back exactly."""
        columns = [{"kind": column.kind, **dataclasses.asdict(column)} for column in self.columns]
        return {
            "schema": SCHEMA,
            "columns": [{key: _as_list(value) for key, value in column.items()} for column in columns],
            "notes": list(self.notes),
            "ignored": list(self.ignored),
            "header": self.header,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Preprocessing":
        """The record that `to_json` wrote; raises TableError if it is not one."""
        if record.get("schema") != SCHEMA:
            raise TableError(
                f"a preprocessing record must have schema {SCHEMA}, but this one has {record.get('schema')!r}; fit "
                f"again, or use the version of degp that wrote it"
            )
        try:
            columns = tuple(_column_from_json(column) for column in record["columns"])
            return cls(columns, tuple(record["notes"]), tuple(record["ignored"]), record.get("header", True))
        except (KeyError, TypeError, AttributeError) as error:
            raise TableError(f"a preprocessing record must be as to_json wrote it, but {error!r}; fit again") from None


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a table as numbers, and the preprocessing that computed them; the estimators take it for X."""

    values: Float[np.ndarray, "N D"]
    preprocessing: Preprocessing

    @property
    def shape(self) -> tuple[int, int]:
        """N and D."""
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class _Dropped:
    """A column that is left out, and why."""

    name: str
    reason: str


def _fit_column(series: pd.Series, kind: str | None, max_categories: int) -> Column | _Dropped:
    chosen = kind or kind_of(series)
    reason = reason_to_drop(series, chosen) or (None if kind else reason_to_doubt(series, chosen))
    if reason is not None:
        return _Dropped(str(series.name), reason)
    if chosen == "categorical":
        return CategoricalColumn.fit(series, max_categories)
    return KINDS[chosen].fit(series)


def _note(column: Column | _Dropped, series: pd.Series) -> str:
    if isinstance(column, _Dropped):
        return f"{column.name!r}: left out, {column.reason}"
    missing = _missing(column, series)
    rest = f"; {missing} of {len(series)} missing, {column.describe_missing()}" if missing else ""
    return f"{column.name!r}: {column.describe()}{rest}"


def _missing(column: Column, series: pd.Series) -> int:
    """How many cells are missing; of numbers, words such as "?" as well."""
    if isinstance(column, NumericColumn):
        return int(np.isnan(to_numbers(series, column.numerals)).sum())
    return int((~filled_cells(series)).sum())


def _is_text(column: Column) -> bool:
    """Whether the reader of a file would mistake the cells for other numbers, such as 1.234 for 1234."""
    if isinstance(column, NumericColumn):
        return column.numerals is not Numerals.PLAIN
    return isinstance(column, CategoricalColumn) and column.as_text


def _column_from_json(record: Mapping[str, Any]) -> Column:
    values = dict(record)
    kind = values.pop("kind")
    if kind not in RECORDS:
        raise TableError(f"a column's kind must be one of {quoted(RECORDS)}, but it is {kind!r}; fit again")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    if "scale" in values:
        values["scale"] = Scale(**values["scale"])
    if "numerals" in values:
        values["numerals"] = Numerals(values["numerals"])
    return RECORDS[kind](**values)


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _check_frame(frame: pd.DataFrame, ignored: Sequence[str], kinds: Mapping[str, str]) -> None:
    names = _column_names(frame)
    require_columns([*ignored, *kinds], names, where="the table")
    unknown = {name: kind for name, kind in kinds.items() if kind not in KINDS}
    if unknown:
        raise ValueError(f"a column's kind must be one of {quoted(KINDS)}, but kinds has {unknown}")


def _column_names(frame: pd.DataFrame) -> list[str]:
    """Names of the columns; raises TableError if they are not text, or not unique."""
    names = list(frame.columns)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise TableError(
            f"column names must be text, but there is {odd[0]!r}; rename it, as by frame.rename(columns=str)"
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise TableError(f"columns must have different names, but {quoted(repeated)} occur more than once; rename them")
    return names
