"""The target column: whether it is a number or a class, and the class labels."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Shaped

from degp.tabular.cells import are_numbers, filled_cells, reject, to_numbers, to_text
from degp.tabular.errors import TableError, require_columns

__all__ = ["CLASSIFICATION", "REGRESSION", "Target", "Task", "infer_task"]

SCHEMA = 1
REGRESSION, CLASSIFICATION = "regression", "classification"
MAX_CLASSES, ROWS_PER_CLASS = 20, 10  # whole numbers with more values, or fewer rows per value, are quantities
MOSTLY = 0.9  # of the cells


class Task(NamedTuple):
    """Regression or classification, and the reason."""

    name: str
    reason: str


def infer_task(series: pd.Series) -> Task:
    """Regression or classification, with the reason.

    Text, booleans and categories are classes. Numbers with decimals are quantities. Whole numbers are classes if
    there are two of them, or at most 20 of them with ten rows each on average; otherwise they are quantities. In a
    float column, whole numbers count as such only if cells are missing, since pandas stores integers with missing
    cells as floats.
    """
    filled = series[filled_cells(series)]
    distinct = (to_text(filled) if filled.dtype.kind == "O" else filled).nunique()
    if _is_text(filled):
        return Task(CLASSIFICATION, f"it has {distinct} different labels that are not numbers")
    values = to_numbers(filled)
    if (values % 1).any() or (series.dtype.kind == "f" and len(filled) == len(series)):
        return Task(REGRESSION, "it has numbers with decimals")
    if distinct == 2 or (distinct <= MAX_CLASSES and len(filled) >= ROWS_PER_CLASS * distinct):
        hint = "; pass --task regression (in Python, task='regression') to predict a number" if distinct > 2 else ""
        reason = f"it has whole numbers, and only {distinct} different ones in {len(filled)} rows{hint}"
        return Task(CLASSIFICATION, reason)
    return Task(REGRESSION, f"it has whole numbers, and {distinct} different ones in {len(filled)} rows")


@dataclass(frozen=True)
class Target:
    """The column to predict, fitted on training rows.

    Attributes:
        name: of the column.
        task: regression or classification.
        labels: the classes in the order of their numbers 0, 1, …; empty for regression.
        notes: sentences about what was done.
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
        """From training rows; `task` overrides `infer_task`."""
        require_columns([name], list(frame.columns), where="the table")
        series, filled = frame[name], filled_cells(frame[name])
        _check(series, filled)
        task, reason = infer_task(series) if task is None else Task(task, "it was requested")
        missing = int((~filled).sum())
        notes = [f"{name!r}: {task}, because {reason}"]
        notes += [f"{missing} of {len(series)} rows have no {name!r} and are left out"] if missing else []
        labels = _labels(series[filled]) if task == CLASSIFICATION else ()
        return cls(name, task, labels, tuple(notes))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The column, if its labels are text and `read_table` should read it as such."""
        return (self.name,) if any(isinstance(label, str) for label in self.labels) else ()

    def split(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, Shaped[np.ndarray, " N"]]:
        """The rows that have a target, and their targets: float64 numbers, or int64 indices of `labels`."""
        require_columns([self.name], list(frame.columns), where="the table")
        rows = frame[filled_cells(frame[self.name])]
        if self.task == REGRESSION:
            return rows, to_numbers(rows[self.name])
        text = to_text(rows[self.name])
        classes = pd.Index([str(label) for label in self.labels], dtype=object).get_indexer(text)
        unseen = classes < 0  # not among the labels
        expected = f"one of the {len(self.labels)} labels of training"
        reject(rows[self.name], unseen, expected, _label_advice(text[unseen], self.labels))
        return rows, classes.astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dump`."""
        labels, notes = list(self.labels), list(self.notes)
        return {"schema": SCHEMA, "name": self.name, "task": self.task, "labels": labels, "notes": notes}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Target":
        """The record that `to_json` wrote; raises TableError if it is not one."""
        if record.get("schema") != SCHEMA:
            raise TableError(
                f"a target record must have schema {SCHEMA}, but this one has {record.get('schema')!r}; fit again, or "
                f"use the version of degp that wrote it"
            )
        try:
            return cls(record["name"], record["task"], tuple(record["labels"]), tuple(record["notes"]))
        except (KeyError, TypeError) as error:
            raise TableError(f"a target record must be as to_json wrote it, but {error!r}; fit again") from None


def _is_text(filled: pd.Series) -> bool:
    if filled.dtype.kind == "b" or isinstance(filled.dtype, pd.CategoricalDtype):
        return True
    return filled.dtype.kind == "O" and not are_numbers(to_text(filled)).all()


def _labels(filled: pd.Series) -> tuple[str | int | bool, ...]:
    """Distinct labels in order, as JSON values: booleans, whole numbers, or text."""
    distinct = set(to_text(filled))
    if distinct <= {"True", "False"}:
        return tuple(sorted(label == "True" for label in distinct))
    if all(re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in distinct):
        return tuple(sorted(map(int, distinct)))
    return tuple(sorted(distinct))


def _label_advice(unseen: pd.Series, labels: tuple[str | int | bool, ...]) -> str:
    """What to do about unseen labels; some differ from a known one by dots and blanks at the end only."""
    known = {_trimmed(label): label for label in labels}
    nearly = next((label for label in unseen if _trimmed(label) in known), None)
    if nearly is None:
        return "correct it"
    return f"{nearly!r} and {known[_trimmed(nearly)]!r} differ by a trailing dot or blank only: write them alike"


def _trimmed(label: str | int | bool) -> str:
    return str(label).rstrip(". ")


def _check(series: pd.Series, filled: Bool[np.ndarray, " N"]) -> None:
    """Raises TableError if nothing can be learned from such a target."""
    where = f"the target {series.name!r}"
    if not filled.any():
        raise TableError(
            f"{where} must have values, but all {len(series)} of its cells are missing; is it the right one?"
        )
    if filled.sum() < 2:
        raise TableError(f"there must be at least two rows with {where}, but there is one; add rows")
    text = to_text(series[filled])
    distinct = text.nunique()
    if distinct == 1:
        raise TableError(f"{where} must vary, but every row has {text.iloc[0]!r}; is it the right column?")
    if _is_text(series[filled]) and are_numbers(text).mean() >= MOSTLY:
        to_numbers(series)  # raises an error about the first cell that is not a number
    if _is_text(series[filled]) and distinct > MAX_CLASSES and distinct > len(text) / 2:
        raise TableError(
            f"{where} must be numbers, or labels that repeat, but has {distinct} different texts in {len(text)} rows, "
            f"such as {text.iloc[0]!r}; is it the right column?"
        )
