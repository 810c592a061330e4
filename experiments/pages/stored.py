"""Stored records, and how pages write them: cells, tables and lists of names."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from degp.report import load_results
from degp.runtime.files import read_json

__all__ = [
    "RESULTS",
    "Records",
    "cell",
    "failures",
    "listed",
    "lowest",
    "records",
    "signed",
    "table",
    "values",
    "where",
    "without_empty_columns",
]

RESULTS = Path(__file__).parents[1] / "results"

Records = Sequence[Mapping[str, Any]]


@cache
def records(name: str) -> Records:
    """The records of `results/name`; none where the experiment has not been run."""
    folder = RESULTS / name
    return tuple(load_results(folder)["records"]) if (folder / "metrics.json").exists() else ()


@cache
def failures(name: str) -> Records:
    """The failed runs of `results/name`."""
    path = RESULTS / name / "failures.json"
    return tuple(read_json(path)) if path.exists() else ()


def where(rows: Records, **facts: Any) -> Records:
    """The records that have these facts."""
    return [row for row in rows if all(row.get(key) == value for key, value in facts.items())]


def values(rows: Records, score: str) -> list[float]:
    """A score of the records that have it."""
    return [row[score] for row in rows if row.get(score) is not None]


def cell(numbers: Sequence[float], digits: int = 3, scale: float = 1.0) -> str:
    """Mean ± standard error; a dash where there is nothing."""
    if not numbers:
        return "–"
    error = f" ± {scale * stdev(numbers) / math.sqrt(len(numbers)):.{digits}f}" if len(numbers) > 1 else ""
    return f"{scale * mean(numbers):.{digits}f}{error}".replace("-", "−")


def signed(numbers: Sequence[float], digits: int = 3) -> str:
    """A mean difference ± standard error, with its sign."""
    text = cell(numbers, digits)
    return text if text.startswith(("−", "–")) else f"+{text}"


def lowest(scores: Mapping[str, float]) -> str:
    """The name with the lowest score."""
    return min(scores, key=scores.__getitem__)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    first, *others = (f"| {' | '.join(row)} |" for row in (heads, *rows))
    return "\n".join([first, f"|{'---|' * len(heads)}", *others])


def without_empty_columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns that have dashes alone."""
    kept = [place for place in range(len(heads)) if any(row[place] != "–" for row in rows)]
    return table([heads[place] for place in kept], [[row[place] for place in kept] for row in rows])


def listed(names: Sequence[str], none: str = "none") -> str:
    """As a list of words: "a, b and c"."""
    *first, last = names or [none]
    return f"{', '.join(first)} and {last}" if first else last
