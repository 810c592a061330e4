"""Ctrl-C between two steps and never within one, so that what is saved then can be gone on with exactly."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Lets Ctrl-C wait for the end of the block; a second one falls at once.

    Only where Ctrl-C raises KeyboardInterrupt: a handler of the user's own stays in place.
    """
    if threading.current_thread() is not threading.main_thread() or not _raises():
        yield
        return
    waiting = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if waiting:
            raise KeyboardInterrupt
        waiting = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if waiting:
        raise KeyboardInterrupt


def _raises() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
