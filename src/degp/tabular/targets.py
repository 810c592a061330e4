"""The target column, or several: whether it is a number or a class, and the class labels."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Shaped

from degp.tabular.cells import are_numbers, filled_cells, reject, to_numbers, to_text
from degp.tabular.errors import TableError, require_columns
from degp.tabular.numerals import numerals_of, without_placeholders

__all__ = ["CLASSIFICATION", "REGRESSION", "Target", "Task", "infer_task"]

SCHEMA = 2  # 1 had one name
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

    Example:
        >>> infer_task(pd.Series(["yes", "no", "yes"])).name
        'classification'
    """
    filled = series[_has_target(series)]
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
    """The column to predict, or several columns of numbers, fitted on training rows.

    Attributes:
        names: of the columns; one for classification.
        task: regression or classification.
        labels: the classes in the order of their numbers 0, 1, …; empty for regression.
        notes: sentences about what was done.

    Example:
        >>> frame = pd.DataFrame({"size": [50, 80, 65], "sold": ["yes", "no", None]})
        >>> target = Target.fit(frame, "sold")
        >>> rows, targets = target.split(frame)
        >>> target.labels, targets.tolist()
        (('no', 'yes'), [1, 0])
    """

    names: tuple[str, ...]
    task: str
    labels: tuple[str | int | bool, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.task not in (REGRESSION, CLASSIFICATION):
            raise ValueError(f"the task must be {REGRESSION} or {CLASSIFICATION}, but it is {self.task!r}")

    @classmethod
    def fit(cls, frame: pd.DataFrame, names: str | Sequence[str], task: str | None = None) -> "Target":
        """From training rows; `task` overrides `infer_task`. Several columns must be numbers."""
        names = (names,) if isinstance(names, str) else tuple(names)
        require_columns(names, list(frame.columns), where="the table")
        for name in names:
            _check(frame[name], _has_target(frame[name]))
        tasks = [infer_task(frame[name]) if task is None else Task(task, "it was requested") for name in names]
        if len(names) > 1:
            _require_numbers(names, tasks)
        filled = _filled(frame, names)
        missing, quoted = int((~filled).sum()), " or ".join(map(repr, names))
        notes = [f"{name!r}: {task.name}, because {task.reason}" for name, task in zip(names, tasks, strict=True)]
        notes += [f"{missing} of {len(frame)} rows have no {quoted} and are left out"] if missing else []
        labels = _labels(frame[names[0]][filled]) if tasks[0].name == CLASSIFICATION else ()
        return cls(names, tasks[0].name, labels, tuple(notes))

    @property
    def name(self) -> str:
        """The column's name; several are separated by commas."""
        return ", ".join(self.names)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The column, if its labels are text and `read_table` should read it as such."""
        return self.names if any(isinstance(label, str) for label in self.labels) else ()

    def split(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, Shaped[np.ndarray, "N *C"]]:
        """The rows that have a target, and their targets: float64 numbers, or int64 indices of `labels`."""
        require_columns(self.names, list(frame.columns), where="the table")
        rows = frame[_filled(frame, self.names)]
        if self.task == REGRESSION:
            columns = [to_numbers(rows[name]) for name in self.names]
            return rows, columns[0] if len(columns) == 1 else np.column_stack(columns)
        (name,) = self.names
        text = to_text(rows[name])
        classes = pd.Index([str(label) for label in self.labels], dtype=object).get_indexer(text)
        unseen = classes < 0  # not among the labels
        expected = f"one of the {len(self.labels)} labels of training"
        reject(rows[name], unseen, expected, _label_advice(text[unseen], self.labels))
        return rows, classes.astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dump`."""
        names, labels, notes = list(self.names), list(self.labels), list(self.notes)
        return {"schema": SCHEMA, "names": names, "task": self.task, "labels": labels, "notes": notes}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Target":
        """The record that `to_json` wrote; raises TableError if it is not one."""
        if record.get("schema") not in (1, SCHEMA):
            raise TableError(
                f"a target record must have schema 1 or {SCHEMA}, but this one has {record.get('schema')!r}; fit "
                f"again, or use the version of degp that wrote it"
            )
        try:
            names = (record["name"],) if record["schema"] == 1 else tuple(record["names"])
            return cls(names, record["task"], tuple(record["labels"]), tuple(record["notes"]))
        except (KeyError, TypeError) as error:
            raise TableError(f"a target record must be as to_json wrote it, but {error!r}; fit again") from None


def _filled(frame: pd.DataFrame, names: Sequence[str]) -> Bool[np.ndarray, " N"]:
    """Which rows have all targets."""
    return np.logical_and.reduce([_has_target(frame[name]) for name in names])


def _has_target(series: pd.Series) -> Bool[np.ndarray, " N"]:
    """Which cells are filled; among numbers, a word such as "?" is a missing one."""
    filled = filled_cells(series)
    if series.dtype.kind != "O" or isinstance(series.dtype, pd.CategoricalDtype):
        return filled
    text = to_text(series)
    numbers = without_placeholders(text)
    return numbers.notna().to_numpy() if numerals_of(numbers.dropna().unique()) else filled


def _require_numbers(names: Sequence[str], tasks: Sequence[Task]) -> None:
    if len(set(names)) < len(names):
        raise TableError(
            f"targets must be different columns, but they are {', '.join(map(repr, names))}; name each once"
        )
    classes = [name for name, task in zip(names, tasks, strict=True) if task.name == CLASSIFICATION]
    if classes:
        raise TableError(
            f"several targets must all be numbers, but {classes[0]!r} has classes; fit a model of its own for it, or "
            f"pass --task regression (in Python, task='regression') if its values are quantities"
        )


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
