"""Ctrl-C between two steps and never within one, so that the state saved then can be resumed exactly."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["held_interrupts"]


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Defers Ctrl-C to the end of the block; a second one takes effect at once.

    Does nothing if Ctrl-C does not raise KeyboardInterrupt: a custom handler stays in place.
    """
    if threading.current_thread() is not threading.main_thread() or not _raises_interrupt():
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


def _raises_interrupt() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
