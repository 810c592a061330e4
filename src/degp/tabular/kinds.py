"""The kind of a column, inferred from its cells, and whether it carries information."""

import re

import pandas as pd

from degp.tabular.cells import are_numbers, date_format, filled_cells, to_numbers, to_text
from degp.tabular.columns import are_boolean, spread
from degp.tabular.errors import TableError
from degp.tabular.numerals import without_placeholders

__all__ = ["kind_of", "reason_to_doubt", "reason_to_drop"]

MOSTLY = 0.9  # of the cells
FEW = 20  # up to this many distinct numbers among text may be names: floors 1, 2, 3 and PH
ROW_NAMES = ("id", "index", "__index_level_0__")


def kind_of(series: pd.Series) -> str:
    """numeric, boolean, categorical or date; text that is mostly numbers is numeric."""
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
    """Why such a column carries no information, if so."""
    distinct = (to_text(series) if series.dtype.kind == "O" else series).nunique()
    if not distinct:
        return "every cell is missing"
    constant = distinct == 1 or (kind == "numeric" and not spread(to_numbers(series)))
    if constant and distinct > 1 and _are_whole(series):
        return (
            f"an identifier: its {distinct} different whole numbers agree to 12 digits; subtract a constant if they "
            f"are quantities"
        )
    return "every row has the same value" if constant and bool(filled_cells(series).all()) else None


def reason_to_doubt(series: pd.Series, kind: str) -> str | None:
    """Why such a column seems to identify its rows instead of describing them, if so."""
    if kind == "categorical":
        distinct, filled = series.nunique(), series.count()
        if distinct > MOSTLY * filled:
            return f"an identifier: {distinct} different texts in {filled} rows"
    if kind == "numeric" and (str(series.name).casefold() in ROW_NAMES or str(series.name).startswith("Unnamed: ")):
        values = to_numbers(series)
        return "it numbers the rows" if not (values % 1).any() and series.nunique() == len(series) else None
    return None


def _kind_of_text(series: pd.Series) -> str:
    text = to_text(series).dropna()
    if are_boolean(text.unique()):
        return "boolean"
    distinct = pd.Series(without_placeholders(text).dropna().unique(), dtype=object)
    numeric = are_numbers(distinct)
    if numeric.all() and (len(distinct) or text.empty):
        return "numeric"
    if numeric.sum() > FEW and text.isin(distinct[numeric]).mean() >= MOSTLY:
        return "numeric"  # fitting it raises an error about the other cells
    return "date" if date_format(text) else "categorical"


def _are_whole(series: pd.Series) -> bool:
    """Whether the cells are integers: by their type, by their digits, or because float64 has no fractions there."""
    if series.dtype.kind == "f":
        return bool((series.dropna().abs() >= 2**53).all())
    if series.dtype.kind == "O":
        return all(re.fullmatch(r"[+-]?\d+", cell) for cell in to_text(series).dropna())
    return series.dtype.kind in "iu"
