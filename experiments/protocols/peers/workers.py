"""Tasks in processes of one thread each; a task that fails, crashes or takes too long does not end the others."""

import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from experiments.protocols.deadline import Deadline

__all__ = ["Failure", "finished"]

Task = TypeVar("Task", bound=tuple[Any, ...])
ENVIRONMENT = {
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")},
    "CUDA_VISIBLE_DEVICES": "",
}
READY = "ready"  # a worker's first message


@dataclass(frozen=True)
class Failure:
    """Why a task has no result, in one line."""

    reason: str


def finished(
    function: Callable[..., Any], tasks: Sequence[Task], *, workers: int, deadline: Deadline, limit_seconds: float
) -> Generator[tuple[Task, Any], None, None]:
    """Each task with its `function(*task)` or a Failure, as they finish; none starts after the deadline.

    Args:
        function: pickled by name.
        limit_seconds: for one task; its worker is then killed and replaced.
    """
    waiting = deque(tasks)
    pool = [_Worker(function) for _ in range(min(workers, len(tasks)))]
    try:
        while True:
            for worker in pool:
                if worker.task is None and waiting and deadline.allows():
                    worker.give(waiting.popleft())
            busy = [worker for worker in pool if worker.task is not None]
            if not busy:
                return
            wait([worker.pipe for worker in busy], timeout=1.0)
            for worker in busy:
                outcome = worker.outcome(limit_seconds)
                if outcome is not None:
                    yield outcome
    finally:
        for worker in pool:
            worker.stop()


class _Worker:
    """A process that is started when it gets its first task, and again after a crash."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.task: Any = None
        self.process: Any = None

    def give(self, task: tuple[Any, ...]) -> None:
        self.began: float | None = time.monotonic()
        if self.process is None or not self.process.is_alive():
            self.stop()
            self._start()
            self.began = None  # imports do not count
        self.task = task
        self.pipe.send(task)

    def outcome(self, limit_seconds: float) -> tuple[Any, Any] | None:
        """The task with its result or Failure; None while it runs."""
        if self.began is not None and time.monotonic() - self.began > limit_seconds:
            self.stop()
            result: Any = Failure(f"took more than {limit_seconds:.0f} s")
        elif self.pipe.poll():
            result = self._received()
        else:
            return None
        if result == READY:
            self.began = time.monotonic()
            return None
        task, self.task = self.task, None
        return task, result

    def stop(self) -> None:
        """Ends the process: an idle one by closing the pipe, one with a task at once."""
        if self.process is not None:
            self.pipe.close()
            if self.task is None:
                self.process.join(timeout=10)
            self.process.kill()
            self.process.join()
            self.process = None

    def _start(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, self.function), daemon=True)
        with _one_thread():
            self.process.start()
        theirs.close()

    def _received(self) -> Any:
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):  # the process is gone
            self.process.join()
            code = self.process.exitcode
            self.stop()
            return Failure(f"the process ended with exit code {code}")


def _serve(pipe: Connection, function: Callable[..., Any]) -> None:
    """Runs tasks until the parent closes the pipe; Ctrl-C is the parent's to handle."""
    import torch

    from degp.runtime.cpu import tune_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    tune_process()
    pipe.send(READY)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(_result(function, task))


def _result(function: Callable[..., Any], task: tuple[Any, ...]) -> Any:
    try:
        return function(*task)
    except Exception as error:  # of any peer: one failed task must not end the others
        return Failure(" ".join(f"{type(error).__name__}: {error}".split())[:300])


@contextmanager
def _one_thread() -> Generator[None, None, None]:
    """The environment that a new process inherits: libraries read it when they are imported."""
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
