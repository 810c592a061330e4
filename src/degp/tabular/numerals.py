"""Numbers as people write them: 1,234.5 or 1.234,5, with a currency or %, and words such as "?" for missing ones."""

import re
from collections.abc import Iterable
from enum import StrEnum

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64

__all__ = ["Numerals", "are_placeholders", "numerals_of", "without_placeholders"]

PLACEHOLDERS = frozenset(
    "? ?? - -- --- – — . .. ... * x na n.a n.a. n/a n/d nan <na> nat nil none null missing unknown".split()
) | {"not available", "not applicable", "#n/a", "#na", "#value!", "#div/0!", "#ref!"}
_CURRENCY = "$€£¥₹"
_GAPS = "    '’"  # of groups of three digits, besides the comma or the point
_UNIT = re.compile(rf"([+-]?)\s*[{_CURRENCY}]?\s*([+-]?[^\s{_CURRENCY}%].*?)\s*[{_CURRENCY}%]?", re.DOTALL)


class Numerals(StrEnum):
    """How the cells of a column write numbers; the value is an example."""

    PLAIN = "1234.5"
    POINT = "1,234.5"
    COMMA = "1.234,5"

    def parse(self, text: pd.Series) -> Float64[np.ndarray, " N"]:
        """Texts as numbers, NaN where one is none; a percentage counts in per cent, and (5) is −5."""
        if self is not Numerals.PLAIN:
            distinct = pd.Series(text.dropna().unique(), dtype=object)
            text = text.map(dict(zip(distinct, map(self._plain, distinct), strict=True)))
        return pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)

    def _plain(self, cell: str) -> str | None:
        """The cell as Python writes numbers."""
        if cell.startswith("(") and cell.endswith(")"):
            cell = f"-{cell[1:-1]}"
        unit = _UNIT.fullmatch(cell)
        digits = unit and _DIGITS[self].fullmatch(unit[1] + unit[2])
        if not digits:
            return None
        group, mark = (".", ",") if self is Numerals.COMMA else (",", ".")
        return re.sub(rf"[{group}{_GAPS}]", "", digits[0]).replace(mark, ".")


def _digits(group: str, mark: str) -> re.Pattern[str]:
    groups = "|".join(rf"[1-9]\d{{0,2}}(?:{re.escape(gap)}\d{{3}})+" for gap in group + _GAPS)
    return re.compile(rf"[+-]?(?:{groups}|\d+)?(?:{re.escape(mark)}\d*)?(?:[eE][+-]?\d+)?")


_DIGITS = {Numerals.POINT: _digits(",", "."), Numerals.COMMA: _digits(".", ",")}


def numerals_of(distinct: Iterable[str]) -> Numerals | None:
    """The first way of writing numbers that all these texts follow, placeholders left out."""
    text = without_placeholders(pd.Series(list(distinct), dtype=object)).dropna()
    return next((form for form in Numerals if not np.isnan(form.parse(text)).any()), None) if len(text) else None


def are_placeholders(text: pd.Series) -> Bool[np.ndarray, " N"]:
    """Which texts stand for a missing number or date."""
    return text.str.casefold().isin(PLACEHOLDERS).to_numpy() if len(text) else np.zeros(0, dtype=bool)


def without_placeholders(text: pd.Series) -> pd.Series:
    """The texts, None where one stands for a missing number or date."""
    return text.where(~are_placeholders(text), None)
