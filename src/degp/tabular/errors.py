"""Errors and warnings about tables."""

import difflib
import warnings
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager

__all__ = ["CellWarning", "TableError", "TableWarning", "quoted", "require_columns", "summed_warnings"]


class TableError(ValueError):
    """A table cannot be used; the message says where, why, and what to do.

    Example:
        >>> from degp.tabular import read_table
        >>> try:
        ...     frame = read_table("houses.csv")
        ... except TableError as error:
        ...     print(error)
        there must be a table at houses.csv, but there is no such file; check the path
    """


class TableWarning(UserWarning):
    """A table was used, but a part of it was ignored or replaced; the message says how much.

    Example:
        >>> import pandas as pd
        >>> from degp.tabular import Preprocessing
        >>> preprocessing = Preprocessing.fit(pd.DataFrame({"size": [1.5, 2.5]}))
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", TableWarning)  # about the colour, which training did not have
        ...     inputs = preprocessing.transform(pd.DataFrame({"size": [2.0], "colour": ["red"]}))
    """


class CellWarning(TableWarning):
    """Some cells of a column are unlike those of training.

    Args:
        column: its name.
        count: number of such cells.
        finding: what they are.
        consequence: how they were treated, after a comma or semicolon.
    """

    def __init__(self, column: str, count: int, finding: str, consequence: str) -> None:
        super().__init__(column, count, finding, consequence)
        self.column, self.count, self.finding, self.consequence = column, count, finding, consequence

    def __str__(self) -> str:
        return f"column {self.column!r} has {self.count} {self.finding}{self.consequence}"


@contextmanager
def summed_warnings() -> Iterator[None]:
    """Delays the block's warnings to its end and issues each once, its cells counted over all chunks of a table."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
    finally:
        first: dict[Hashable, warnings.WarningMessage] = {}
        counts: Counter[Hashable] = Counter()
        for warning in caught:
            first.setdefault(_cause(warning), warning)
            counts[_cause(warning)] += getattr(warning.message, "count", 0)
        for cause, warning in first.items():
            message = warning.message
            if isinstance(message, CellWarning):
                message = CellWarning(message.column, counts[cause], message.finding, message.consequence)
            warnings.warn_explicit(message, warning.category, warning.filename, warning.lineno)


def require_columns(names: Iterable[str], present: Collection[str], *, where: str) -> None:
    """Raises TableError if columns are missing; the message suggests similar names."""
    missing = [name for name in names if name not in present]
    if missing:
        raise TableError(
            f"{where} must have the columns {quoted(missing)}, but has {quoted(present)}; "
            f"{_suggestion(missing, present)}"
        )


def quoted(names: Iterable[str], most: int = 8) -> str:
    """Names in quotes, separated by commas; after the first few, only the number of the others."""
    words = [repr(name) for name in names]
    rest = [f"and {len(words) - most} more"] if len(words) > most else []
    return ", ".join(words[:most] + rest) or "none"


def _cause(warning: warnings.WarningMessage) -> Hashable:
    message = warning.message
    return (message.column, message.finding) if isinstance(message, CellWarning) else (warning.category, str(message))


def _suggestion(missing: list[str], present: Collection[str]) -> str:
    nearest = {name: difflib.get_close_matches(name, present, n=1, cutoff=0.6) for name in missing}
    guesses = [f"{match[0]!r} for {name!r}" for name, match in nearest.items() if match]
    return f"did you mean {', '.join(guesses)}?" if guesses else "check the names in its header"
