"""A claim that was stated before the runs, as the records confirm or refute it."""

from dataclasses import dataclass

__all__ = ["Claim"]


@dataclass(frozen=True)
class Claim:
    """A claim, what was found, and whether it holds."""

    text: str
    found: str
    holds: bool
