"""Encodings of one column: small records, fitted on training rows, that turn its cells into finite numbers.

Each record is plain JSON. `features` names its outputs, and `groups` says which of them belong together, such as those
of one category. `encode` computes them and issues a CellWarning if cells are unlike those of training. `describe` says
in a sentence what was done.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float32, Float64

from degp.tabular.cells import date_format, reject, to_days, to_numbers, to_text
from degp.tabular.errors import CellWarning, TableError
from degp.tabular.numerals import Numerals, numerals_of

__all__ = [
    "KINDS",
    "MAX_CATEGORIES",
    "RECORDS",
    "BooleanColumn",
    "CategoricalColumn",
    "Column",
    "DateColumn",
    "NumericColumn",
    "PlainColumn",
    "Scale",
    "are_boolean",
    "spread",
]

ROUNDING = 1e-12  # a column whose relative variation is smaller is constant
MAX_CATEGORIES = 250  # such as countries; their features share one relevance, so that many cost time, not accuracy
TRUE, FALSE = ("true", "yes", "t", "y", "on", "1"), ("false", "no", "f", "n", "off", "0")
PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days


@dataclass(frozen=True)
class Scale:
    """Standardisation by the training values: x ↦ (x − mean) / std, with the median for a missing x."""

    mean: float
    std: float
    median: float

    def __post_init__(self) -> None:
        if not (np.isfinite([self.mean, self.std, self.median]).all() and self.std > 0):
            raise TableError(f"mean, std and median must be finite and std positive, but this is {self}; fit again")

    @classmethod
    def fit(cls, values: Float64[np.ndarray, " N"]) -> "Scale":
        """From the values that are not NaN; a constant gets standard deviation 1, so that it becomes 0."""
        filled = values[~np.isnan(values)]
        if not len(filled):
            return cls(0.0, 1.0, 0.0)
        mean, std = float(filled.mean()), spread(filled)
        return cls(mean, std or 1.0, float(np.median(filled)))

    def apply(self, values: Float64[np.ndarray, " N"], series: pd.Series) -> Float32[np.ndarray, " N"]:
        """Standardised values; raises TableError if one exceeds the range of float32."""
        with np.errstate(over="ignore"):
            scaled = (np.where(np.isnan(values), self.median, values) - self.mean) / self.std
        limit = f"values within {np.finfo(np.float32).max:.0e} standard deviations ({self.std:g}) of {self.mean:g}"
        reject(series, ~(np.abs(scaled) < np.finfo(np.float32).max), limit, "check its unit")
        return scaled.astype(np.float32)


@dataclass(frozen=True)
class PlainColumn:
    """Numbers as they are, in float64, from a table that has nothing else; the median where one is missing."""

    name: str
    median: float
    kind: ClassVar[str] = "plain"
    indicator: ClassVar[bool] = False

    @property
    def features(self) -> tuple[str, ...]:
        """The value."""
        return (self.name,)

    @property
    def groups(self) -> tuple[int, ...]:
        """One."""
        return (0,)

    def encode(self, series: pd.Series) -> Float64[np.ndarray, "N 1"]:
        """x, and the median where it is missing."""
        values = to_numbers(series)
        missing = np.isnan(values)
        _warn_of_missing(missing, self)
        return np.where(missing, self.median, values)[:, None]

    def describe(self) -> str:
        """That nothing was done."""
        return "number"

    def describe_missing(self) -> str:
        """What a missing cell becomes."""
        return f"filled with the median {self.median:g}"


@dataclass(frozen=True)
class NumericColumn:
    """Numbers, standardised; if training had missing ones, with an indicator of missing cells.

    Attributes:
        numerals: how text writes the numbers.
    """

    name: str
    scale: Scale
    indicator: bool
    numerals: Numerals = Numerals.PLAIN
    kind: ClassVar[str] = "numeric"

    @classmethod
    def fit(cls, series: pd.Series) -> "NumericColumn":
        """From training rows."""
        text = to_text(series).dropna().unique() if series.dtype.kind == "O" else ()
        numerals = numerals_of(text) or Numerals.PLAIN
        values = to_numbers(series, numerals)
        return cls(str(series.name), Scale.fit(values), bool(np.isnan(values).any()), numerals)

    @property
    def features(self) -> tuple[str, ...]:
        """The value, and the indicator."""
        return (self.name, *_indicator(self.name, self.indicator))

    @property
    def groups(self) -> tuple[int, ...]:
        """One per feature."""
        return tuple(range(len(self.features)))

    def encode(self, series: pd.Series) -> Float32[np.ndarray, "N F"]:
        """(x − mean) / std, with the median where x is missing."""
        values = to_numbers(series, self.numerals)
        return _with_indicator([self.scale.apply(values, series)], np.isnan(values), self)

    def describe(self) -> str:
        """Mean and standard deviation."""
        form = "" if self.numerals is Numerals.PLAIN else f" as in {self.numerals}"
        return f"number{form}, standardised from {self.scale.mean:g} ± {self.scale.std:g}"

    def describe_missing(self) -> str:
        """What a missing cell becomes."""
        return f"filled with the median {self.scale.median:g}"


@dataclass(frozen=True)
class BooleanColumn:
    """0 and 1, from True/False, yes/no, on/off, 0/1; a missing cell becomes the share of ones in training."""

    name: str
    share: float
    indicator: bool
    kind: ClassVar[str] = "boolean"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise TableError(
                f"the share of ones must lie in [0, 1], but of {self.name!r} it is {self.share}; fit again"
            )

    @classmethod
    def fit(cls, series: pd.Series) -> "BooleanColumn":
        """From training rows."""
        values = _truth(series)
        missing = np.isnan(values)
        return cls(str(series.name), float(values[~missing].mean()) if not missing.all() else 0.0, bool(missing.any()))

    @property
    def features(self) -> tuple[str, ...]:
        """The truth value, and the indicator."""
        return (self.name, *_indicator(self.name, self.indicator))

    @property
    def groups(self) -> tuple[int, ...]:
        """One per feature."""
        return tuple(range(len(self.features)))

    def encode(self, series: pd.Series) -> Float32[np.ndarray, "N F"]:
        """0 or 1; a number that training did not have, as of a count, as it is."""
        values = to_numbers(series) if series.dtype.kind in "iuf" else _truth(series)
        missing = np.isnan(values)
        self._warn(values[~missing & (values != 0) & (values != 1)])
        return _with_indicator([np.where(missing, self.share, values)], missing, self)

    def _warn(self, unseen: Float64[np.ndarray, " N"]) -> None:
        if len(unseen):
            consequence = f", such as {unseen[0]:g}, and training had 0 and 1 only; predictions extrapolate"
            warnings.warn(CellWarning(self.name, len(unseen), "other numbers", consequence), stacklevel=4)

    def describe(self) -> str:
        """The share of ones."""
        return f"0 or 1, {self.share:.0%} ones"

    def describe_missing(self) -> str:
        """What a missing cell becomes."""
        return "filled with this share"


@dataclass(frozen=True)
class CategoricalColumn:
    """One-hot encoded categories: the most frequent first, then "other", then the indicator of missing cells.

    Attributes:
        categories: those with a feature of their own.
        other: whether training had more categories. An unseen one is then encoded as "other", otherwise by zeros.
        indicator: whether training had missing cells. If not, a missing one is treated as an unseen category.
        as_text: whether the cells of training were text, so that "01" and "1" are different categories.
    """

    name: str
    categories: tuple[str, ...]
    other: bool
    indicator: bool
    as_text: bool
    kind: ClassVar[str] = "categorical"

    @classmethod
    def fit(cls, series: pd.Series, max_categories: int = MAX_CATEGORIES) -> "CategoricalColumn":
        """From training rows; equally frequent categories are in alphabetical order."""
        text = to_text(series)
        counts = text.value_counts().to_dict()
        ordered = sorted(counts, key=lambda category: (-counts[category], category))
        frequent = tuple(ordered[:max_categories])
        as_text = series.dtype.kind == "O"
        return cls(str(series.name), frequent, len(ordered) > len(frequent), bool(text.isna().any()), as_text)

    @property
    def features(self) -> tuple[str, ...]:
        """One per category, and the indicator."""
        own = (f"{self.name} = {category}" for category in self.categories)
        other = (f"{self.name} is another",) if self.other else ()
        return (*own, *other, *_indicator(self.name, self.indicator))

    @property
    def groups(self) -> tuple[int, ...]:
        """One for all: they are the values of one variable."""
        return (0,) * len(self.features)

    def encode(self, series: pd.Series) -> Float32[np.ndarray, "N F"]:
        """One-hot rows; all zeros only if the category is unseen and there is no "other"."""
        text = to_text(series)
        place = pd.Index(self.categories, dtype=object).get_indexer(text)  # −1: not among them
        missing = text.isna().to_numpy()
        other = (place < 0) & ~(missing & self.indicator)
        hot = np.zeros((len(text), len(self.categories) + self.other), dtype=np.float32)
        hot[place >= 0, place[place >= 0]] = 1
        if self.other:
            hot[other, -1] = 1
        else:
            self._warn(text[other & ~missing])
        return _with_indicator([hot], missing, self)

    def _warn(self, unseen: pd.Series) -> None:
        if len(unseen):
            warnings.warn(
                CellWarning(
                    self.name,
                    len(unseen),
                    "cells in categories that training has not seen",
                    f", such as {unseen.iloc[0]!r}; they count as none of the {len(self.categories)} known ones",
                ),
                stacklevel=4,
            )

    def describe(self) -> str:
        """The number of categories."""
        if self.other:
            return f"the {len(self.categories)} most frequent categories, one-hot encoded, and one for all others"
        return f"{len(self.categories)} categories, one-hot encoded"

    def describe_missing(self) -> str:
        """What a missing cell becomes."""
        return "encoded as a category"


@dataclass(frozen=True)
class DateColumn:
    """Days, standardised, and the sine and cosine of the cycles that the training dates span.

    Attributes:
        form: the format of the dates, as in `datetime.strptime`, or ISO8601.
        cycles: some of year, week, day.
    """

    name: str
    form: str
    scale: Scale
    cycles: tuple[str, ...]
    indicator: bool
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        if not set(self.cycles) <= PERIODS.keys():
            raise TableError(f"the cycles of {self.name!r} must be among {list(PERIODS)}, but they are {self.cycles}")

    @classmethod
    def fit(cls, series: pd.Series) -> "DateColumn":
        """From training rows."""
        form = (None if series.dtype.kind == "M" else date_format(to_text(series).dropna())) or "ISO8601"
        values = to_days(series, form)
        missing = np.isnan(values)
        cycles = tuple(name for name, period in PERIODS.items() if _spans(values[~missing], period))
        return cls(str(series.name), form, Scale.fit(values), cycles, bool(missing.any()))

    @property
    def features(self) -> tuple[str, ...]:
        """The day, its cycles, and the indicator."""
        waves = (f"{self.name}, {wave} of the {cycle}" for cycle in self.cycles for wave in ("sine", "cosine"))
        return (self.name, *waves, *_indicator(self.name, self.indicator))

    @property
    def groups(self) -> tuple[int, ...]:
        """One for the day, one for both waves of each cycle, one for the indicator."""
        waves = (group for group in range(1, len(self.cycles) + 1) for _ in range(2))
        return (0, *waves, *([len(self.cycles) + 1] if self.indicator else []))

    def encode(self, series: pd.Series) -> Float32[np.ndarray, "N F"]:
        """(days − mean) / std, and sin and cos of 2π days / period; for a missing date the median and 0."""
        values = to_days(series, self.form)
        angles = [2 * np.pi * values / PERIODS[cycle] for cycle in self.cycles]
        waves = [np.nan_to_num(wave(angle)) for angle in angles for wave in (np.sin, np.cos)]
        return _with_indicator([self.scale.apply(values, series), *waves], np.isnan(values), self)

    def describe(self) -> str:
        """The format and the cycles."""
        rest = f" and the cycles of the {', '.join(self.cycles)}" if self.cycles else ""
        return f"date ({self.form}), in days{rest}"

    def describe_missing(self) -> str:
        """What a missing cell becomes."""
        return "filled with the median"


Inferred = NumericColumn | BooleanColumn | CategoricalColumn | DateColumn
Column = PlainColumn | Inferred
KINDS: dict[str, type[Inferred]] = {
    record.kind: record for record in (NumericColumn, BooleanColumn, CategoricalColumn, DateColumn)
}
RECORDS: dict[str, type[Column]] = {PlainColumn.kind: PlainColumn, **KINDS}


def are_boolean(distinct: Iterable[str]) -> bool:
    """Whether these texts are the two of one pair: yes and no, true and false, …"""
    folded = {text.casefold() for text in distinct}
    return any(folded == {yes, no} for yes, no in zip(TRUE, FALSE, strict=True))


def spread(values: Float64[np.ndarray, " N"]) -> float:
    """The standard deviation of what is not NaN, 0 if it is rounding error; no square under- or overflows."""
    values = values[~np.isnan(values)]
    off = values - values.mean()
    largest = float(np.abs(off).max())
    if largest <= max(ROUNDING * float(np.abs(values).max()), np.finfo(np.float64).tiny):
        return 0.0
    return largest * float(np.sqrt(np.mean((off / largest) ** 2)))


def _truth(series: pd.Series) -> Float64[np.ndarray, " N"]:
    text = to_text(series)
    truth = {**dict.fromkeys(TRUE, 1.0), **dict.fromkeys(FALSE, 0.0)}
    values = text.map(lambda cell: truth.get(cell.casefold(), np.nan), na_action="ignore").to_numpy(dtype=np.float64)
    advice = f"correct it, or fit with kinds={{{series.name!r}: 'numeric'}} or 'categorical'"
    reject(series, text.notna().to_numpy() & np.isnan(values), "true or false, yes or no, 1 or 0", advice)
    return values


def _spans(values: Float64[np.ndarray, " N"], period: float) -> bool:
    """Whether the values span a period, and have different phases of it."""
    phases = np.exp(2j * np.pi * values / period)
    return (
        len(values) > 1 and float(np.ptp(values)) >= period and bool(np.ptp(phases.real) + np.ptp(phases.imag) > 1e-6)
    )


def _indicator(name: str, there: bool) -> tuple[str, ...]:
    return (f"{name} is missing",) if there else ()


def _with_indicator(
    features: list[np.ndarray], missing: Bool[np.ndarray, " N"], column: Column
) -> Float32[np.ndarray, "N F"]:
    """The features, and the indicator if the column has one; warns if it has none but cells are missing."""
    _warn_of_missing(missing, column)
    marks = [missing] if column.indicator else []
    return np.column_stack([*features, *marks]).astype(np.float32, copy=False)


def _warn_of_missing(missing: Bool[np.ndarray, " N"], column: Column) -> None:
    if missing.any() and not column.indicator:
        warnings.warn(
            CellWarning(
                column.name,
                int(missing.sum()),
                "missing cells",
                ", but had none in training; they are filled in, and predictions for these rows are less reliable",
            ),
            stacklevel=5,
        )
