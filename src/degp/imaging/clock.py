"""Work that must end by the clock, and goes on another time."""

import time


class OutOfTime(Exception):
    """The time is up; what was done is saved, and the message says how far it got."""


class Deadline:
    """The moment by which work must have ended, so many minutes from now; None is never."""

    def __init__(self, minutes: float | None = None) -> None:
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    def allows(self, seconds: float = 0.0) -> bool:
        """Whether work of so many seconds would still be done in time."""
        return self.end is None or time.monotonic() + seconds < self.end
