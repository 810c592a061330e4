"""What kind of column this is, judged by its cells, and whether it can say anything at all."""

import pandas as pd

from degp.tables.cells import are_numbers, date_format, numbers, words
from degp.tables.columns import are_boolean, spread
from degp.tables.errors import TableError

MOSTLY = 0.9  # of the cells
FEW = 20  # so many distinct numbers among words may be names: floors 1, 2, 3 and PH
ROW_NAMES = ("id", "index", "__index_level_0__")


def kind_of(series: pd.Series) -> str:
    """numeric, boolean, categorical or date; raises TableError for text that is numbers but for a few cells."""
    kind = series.dtype.kind
    if kind in "iuf":
        filled = series.dropna()
        return "boolean" if filled.isin((0, 1)).all() and filled.nunique() == 2 else "numeric"
    if kind in "bmM":
        return {"b": "boolean", "m": "numeric", "M": "date"}[kind]
    if kind == "O":
        return "categorical" if isinstance(series.dtype, pd.CategoricalDtype) else _kind_of_text(series)
    raise TableError(
        f"column {series.name!r} must have numbers, text, booleans or dates, but its type is {series.dtype}; "
        f"leave it out"
    )


def reason_to_drop(series: pd.Series, kind: str) -> str | None:
    """Why such a column says nothing, if so."""
    cells = words(series) if series.dtype.kind == "O" else series
    distinct = cells.nunique()
    if not distinct:
        return "every cell is missing"
    constant = distinct == 1 or (kind == "numeric" and not spread(numbers(series)))
    return "every row has the same value" if constant and bool(cells.notna().all()) else None


def reason_to_doubt(series: pd.Series, kind: str) -> str | None:
    """Why such a column names its rows instead of describing them, if so."""
    if kind == "categorical":
        distinct, filled = series.nunique(), series.count()
        return f"it names the rows: {distinct} different texts in {filled} rows" if distinct > MOSTLY * filled else None
    if kind == "numeric" and (str(series.name).casefold() in ROW_NAMES or str(series.name).startswith("Unnamed: ")):
        values = numbers(series)
        return "it numbers the rows" if not (values % 1).any() and series.nunique() == len(series) else None
    return None


def _kind_of_text(series: pd.Series) -> str:
    text = words(series).dropna()
    distinct = pd.Series(text.unique(), dtype=object)
    if are_boolean(distinct):
        return "boolean"
    numeric = are_numbers(distinct)
    if numeric.all():
        return "numeric"
    if numeric.sum() > FEW and text.isin(distinct[numeric]).mean() >= MOSTLY:
        return "numeric"  # whose junk is told when it is fitted
    return "date" if date_format(text) else "categorical"
