"""The cells of one column as numbers, text or days; an error names the column, row and value of a bad cell."""

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64

from degp.tabular.errors import TableError
from degp.tabular.numerals import Numerals, numerals_of, without_placeholders

__all__ = [
    "DATE_FORMATS",
    "ISO",
    "LARGEST",
    "are_numbers",
    "date_format",
    "filled_cells",
    "parse_number",
    "reject",
    "to_days",
    "to_numbers",
    "to_text",
]

LARGEST = 1e150  # its square, and a sum of many such squares, is still a float64
ISO = "ISO8601"
_DIGITS = ("%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y")
_NAMES = ("%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
DATE_FORMATS = (ISO, *(date + clock for date in (*_DIGITS, *_NAMES) for clock in _CLOCKS))
_SCALARS = (str, bool, np.bool_, int, np.integer, float, np.floating, decimal.Decimal, datetime.date)


def to_numbers(series: pd.Series, numerals: Numerals | None = None) -> Float64[np.ndarray, " N"]:
    """Cells as float64, NaN where one is missing; raises TableError if one is not a finite number.

    Args:
        numerals: how text writes numbers; None finds out.
    """
    kind = series.dtype.kind
    if kind in "biuf":
        values, filled = series.to_numpy(dtype=np.float64, na_value=np.nan), series.notna().to_numpy()
    elif kind == "m":
        values, filled = series.dt.total_seconds().to_numpy(dtype=np.float64), series.notna().to_numpy()
    else:
        text = without_placeholders(to_text(series))
        form = numerals or numerals_of(text.dropna().unique()) or Numerals.PLAIN
        values, filled = form.parse(text), text.notna().to_numpy()
    reject(
        series, filled & ~(np.abs(values) <= LARGEST), f"finite numbers up to {LARGEST:g}", "clean it or leave it empty"
    )
    return values


def to_text(series: pd.Series) -> pd.Series:
    """Cells as stripped text, None or NaN where one is missing; 1, 1.0 and "1" become the same text."""
    if isinstance(series.dtype, pd.StringDtype):
        stripped = series.str.strip().astype(object)
        return stripped.where(stripped.notna() & (stripped != ""), None)
    cells = series.astype(object)
    filled = cells.notna().to_numpy()
    try:
        text = [(_text(cell) or None) if there else None for cell, there in zip(cells, filled, strict=True)]
    except TypeError:
        odd = np.array([not isinstance(cell, _SCALARS) for cell in cells]) & filled
        reject(series, odd, "numbers, text, booleans or dates", "leave the column out")
        raise
    return pd.Series(text, index=series.index, name=series.name, dtype=object)


def to_days(series: pd.Series, form: str) -> Float64[np.ndarray, " N"]:
    """Cells as days since 1970 in UTC, NaN where one is missing; raises TableError if one is not such a date."""
    if series.dtype.kind == "M":
        return _days(series)
    text = without_placeholders(to_text(series))
    values = _days(_dates(text, form))
    example = "2024-01-31" if form == ISO else f"{datetime.date(2024, 1, 31):{form}}"
    reject(series, text.notna().to_numpy() & np.isnan(values), f"dates like {example}", "clean it or leave it empty")
    return values


def filled_cells(series: pd.Series) -> Bool[np.ndarray, " N"]:
    """Which cells are not missing; blank text is missing."""
    return (to_text(series) if series.dtype.kind == "O" else series).notna().to_numpy()


def date_format(text: pd.Series) -> str | None:
    """The first format that all these cells follow, placeholders left out, if there is one."""
    text = without_placeholders(text).dropna()
    few = text.iloc[:100]
    likely = [form for form in DATE_FORMATS if _dates(few, form).notna().all()]
    return next((form for form in likely if _dates(text, form).notna().all()), None) if len(text) else None


def parse_number(text: str) -> float | None:
    """The number that a text represents, if it does."""
    value = Numerals.PLAIN.parse(pd.Series([text], dtype=object))[0]
    return None if math.isnan(value) else float(value)


def are_numbers(text: pd.Series) -> Bool[np.ndarray, " N"]:
    """Which texts represent numbers, infinite ones included, in the way of writing them that most cells follow."""
    ways = [~np.isnan(form.parse(text)) for form in Numerals]
    return max(ways, key=np.sum)


def reject(series: pd.Series, bad: Bool[np.ndarray, " N"], expected: str, advice: str) -> None:
    """Raises TableError if a cell is bad; the message gives the first one's column, row and value."""
    if bad.any():
        first = int(bad.argmax())
        more = f" and {int(bad.sum()) - 1} more cells like it" if bad.sum() > 1 else ""
        raise TableError(
            f"column {series.name!r} must have {expected}, but row {series.index[first]} (the first row of data is "
            f"row 0) has {_shown(series.iloc[first])}{more}; {advice}"
        )


def _dates(text: pd.Series, form: str) -> pd.Series:
    dated = text.where(text.str.contains(r"\d").eq(True), None)  # pandas takes "now" and "today" for dates
    return pd.to_datetime(dated, format=form, errors="coerce", utc=True)


def _days(dates: pd.Series) -> Float64[np.ndarray, " N"]:
    naive = dates.dt.tz_convert(None) if dates.dt.tz is not None else dates
    moments = naive.to_numpy(dtype="datetime64[us]")
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 86_400e6)


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, (bool, np.bool_, int, np.integer)):
        return str(cell)
    if isinstance(cell, (float, np.floating, decimal.Decimal)):
        value = float(cell)
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(cell, datetime.date):
        return cell.isoformat()
    raise TypeError


def _shown(cell: Any) -> str:
    shown = repr(cell) if isinstance(cell, str) else str(cell)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
