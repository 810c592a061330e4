"""Time limits of long runs, which a later call resumes."""

import time


class OutOfTime(Exception):
    """The time limit was reached; progress is saved, and the message reports it."""


class Deadline:
    """The time by which work must have ended, in minutes from now; None is never."""

    def __init__(self, minutes: float | None = None) -> None:
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    def allows(self, seconds: float = 0.0) -> bool:
        """Whether work of this many seconds would end in time."""
        return self.end is None or time.monotonic() + seconds < self.end
