"""What is said where a table cannot be used, or can be used with a caveat."""

import difflib
from collections.abc import Collection, Iterable


class TableError(ValueError):
    """A table cannot be used; the message says where, why, and what to do."""


class TableWarning(UserWarning):
    """A table was used, but something in it was not taken at its word; the message counts it."""


def require_columns(names: Iterable[str], present: Collection[str], *, where: str) -> None:
    """Raises TableError where columns are missing, with the nearest names that are there."""
    missing = [name for name in names if name not in present]
    if missing:
        raise TableError(
            f"{where} must have the columns {listed(missing)}, but has {listed(present)}; {_advice(missing, present)}"
        )


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names in quotes, and how many more there are after the first few."""
    quoted = [repr(name) for name in names]
    rest = [f"and {len(quoted) - most} more"] if len(quoted) > most else []
    return ", ".join(quoted[:most] + rest) or "none"


def _advice(missing: list[str], present: Collection[str]) -> str:
    nearest = {name: difflib.get_close_matches(name, present, n=1, cutoff=0.6) for name in missing}
    guesses = [f"{match[0]!r} for {name!r}" for name, match in nearest.items() if match]
    return f"did you mean {', '.join(guesses)}?" if guesses else "check the names in its header"
