"""What is to be predicted: a number or a class, and the class labels as they were written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Shaped

from degp.tables.cells import are_numbers, numbers, refuse, words
from degp.tables.errors import TableError, require_columns

SCHEMA = 1
REGRESSION, CLASSIFICATION = "regression", "classification"
MOST_CLASSES, ROWS_A_CLASS = 20, 10  # of whole numbers: with more values, or fewer rows a value, they are quantities
MOSTLY = 0.9  # of the cells


class Task(NamedTuple):
    """What kind of prediction this is, and a sentence that says why."""

    name: str
    reason: str


def infer_task(series: pd.Series) -> Task:
    """Regression or classification, with the reason in words.

    Text, booleans and categories are classes. Numbers with decimals are quantities. Whole numbers are classes if
    there are two of them, or at most 20 of them with ten rows each on average; otherwise they are quantities. Whole
    numbers in a column of decimals count as whole only where the column has gaps, which turn integers to decimals.
    """
    filled = series[_filled(series)]
    distinct = (words(filled) if filled.dtype.kind == "O" else filled).nunique()
    if _is_text(filled):
        return Task(CLASSIFICATION, f"it has {distinct} different labels that are not numbers")
    values = numbers(filled)
    if (values % 1).any() or (series.dtype.kind == "f" and len(filled) == len(series)):
        return Task(REGRESSION, "it has numbers with decimals")
    if distinct == 2 or (distinct <= MOST_CLASSES and len(filled) >= ROWS_A_CLASS * distinct):
        return Task(CLASSIFICATION, f"it has whole numbers, and only {distinct} different ones in {len(filled)} rows")
    return Task(REGRESSION, f"it has whole numbers, and {distinct} different ones in {len(filled)} rows")


@dataclass(frozen=True)
class Target:
    """The column to predict, as training rows fixed it.

    Attributes:
        name: of the column.
        task: regression or classification.
        labels: the classes in the order of their numbers 0, 1, …; empty for regression.
        notes: sentences about what was done, for people.
    """

    name: str
    task: str
    labels: tuple[str | int | bool, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.task not in (REGRESSION, CLASSIFICATION):
            raise ValueError(f"the task must be {REGRESSION} or {CLASSIFICATION}, but it is {self.task!r}")

    @classmethod
    def fit(cls, frame: pd.DataFrame, name: str, task: str | None = None) -> "Target":
        """From training rows; `task` overrides what `infer_task` says."""
        require_columns([name], list(frame.columns), where="the table")
        series, filled = frame[name], _filled(frame[name])
        _check(series, filled)
        task, reason = infer_task(series) if task is None else Task(task, "that was asked for")
        gaps = int((~filled).sum())
        notes = [f"{name!r}: {task}, because {reason}"]
        notes += [f"{gaps} of {len(series)} rows have no {name!r} and are left out"] if gaps else []
        labels = _labels(series[filled]) if task == CLASSIFICATION else ()
        return cls(name, task, labels, tuple(notes))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The column, where its labels are text that `read_table` should leave as it is written."""
        return (self.name,) if any(isinstance(label, str) for label in self.labels) else ()

    def split(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, Shaped[np.ndarray, " N"]]:
        """The rows that have a target, and their targets: float64 numbers, or int64 places in `labels`."""
        require_columns([self.name], list(frame.columns), where="the table")
        rows = frame[_filled(frame[self.name])]
        if self.task == REGRESSION:
            return rows, numbers(rows[self.name])
        places = pd.Index([str(label) for label in self.labels], dtype=object).get_indexer(words(rows[self.name]))
        refuse(rows[self.name], places < 0, f"one of the {len(self.labels)} labels of training", "correct it")
        return rows, places.astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dump`."""
        labels, notes = list(self.labels), list(self.notes)
        return {"schema": SCHEMA, "name": self.name, "task": self.task, "labels": labels, "notes": notes}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Target":
        """The record that `to_json` wrote; raises TableError where it did not."""
        if record.get("schema") != SCHEMA:
            raise TableError(
                f"a target record must have schema {SCHEMA}, but this one has {record.get('schema')!r}; fit again, or "
                f"use the version of degp that wrote it"
            )
        try:
            return cls(record["name"], record["task"], tuple(record["labels"]), tuple(record["notes"]))
        except (KeyError, TypeError) as error:
            raise TableError(f"a target record must be as to_json wrote it, but {error!r}; fit again") from None


def _filled(series: pd.Series) -> Bool[np.ndarray, " N"]:
    return (words(series) if series.dtype.kind == "O" else series).notna().to_numpy()


def _is_text(filled: pd.Series) -> bool:
    if filled.dtype.kind == "b" or isinstance(filled.dtype, pd.CategoricalDtype):
        return True
    return filled.dtype.kind == "O" and not are_numbers(words(filled)).all()


def _labels(filled: pd.Series) -> tuple[str | int | bool, ...]:
    """Distinct labels in order, as JSON has them: booleans, whole numbers, or text."""
    distinct = set(words(filled))
    if distinct <= {"True", "False"}:
        return tuple(sorted(word == "True" for word in distinct))
    if all(re.fullmatch(r"0|-?[1-9][0-9]*", word) for word in distinct):
        return tuple(sorted(map(int, distinct)))
    return tuple(sorted(distinct))


def _check(series: pd.Series, filled: Bool[np.ndarray, " N"]) -> None:
    """Raises TableError where nothing can be learned from such a target."""
    where = f"the target {series.name!r}"
    if not filled.any():
        raise TableError(
            f"{where} must have values, but all {len(series)} of its cells are missing; is it the right one?"
        )
    if filled.sum() < 2:
        raise TableError(f"there must be at least two rows with {where}, but there is one; add rows")
    text = words(series[filled])
    distinct = text.nunique()
    if distinct == 1:
        raise TableError(f"{where} must vary, but every row has {text.iloc[0]!r}; is it the right column?")
    if _is_text(series[filled]) and are_numbers(text).mean() >= MOSTLY:
        numbers(series)  # raises about the first cell that is no number
    if _is_text(series[filled]) and distinct > MOST_CLASSES and distinct > len(text) / 2:
        raise TableError(
            f"{where} must be numbers, or labels that repeat, but has {distinct} different texts in {len(text)} rows, "
            f"such as {text.iloc[0]!r}; is it the right column?"
        )
