"""Shared by experiments of many independent runs: stored records, and parallel processes."""

import json
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
import typer
from tqdm.auto import tqdm

from degp.report import load_results
from degp.runtime.cpu import tune_process
from degp.runtime.files import require_writable
from experiments.protocols.deadline import Deadline

__all__ = ["Jobs", "earlier_records", "finished", "names"]

Task = TypeVar("Task", bound=tuple[Any, ...])
Result = TypeVar("Result")
Runs = Generator[tuple[Task, Result], None, int]  # returns the number of tasks left

Jobs = Annotated[int, typer.Option(min=1, help="Parallel processes, one thread each.")]


def earlier_records(out: Path, config: Mapping[str, Any], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Stored records, which must have the same settings apart from a note, in a writable folder.

    Args:
        fields: identify a run; every record must have them.
    """
    require_writable(out)
    if not (out / "metrics.json").exists():
        return []
    results = load_results(out, fields=fields)
    settings = {name: value for name, value in results["config"].items() if name != "note"}
    if settings != json.loads(json.dumps(config)):
        raise typer.BadParameter(f"{out} holds results with other settings; choose another --out, or remove it")
    return results["records"]


def names(records: list[dict[str, Any]], key: str) -> list[str]:
    """The distinct values of a key, in order of appearance."""
    return list(dict.fromkeys(record[key] for record in records))


def finished(
    function: Callable[..., Result], tasks: Sequence[Task], *, jobs: int, deadline: Deadline
) -> Generator[tuple[Task, Result], None, None]:
    """Each task with its `function(*task)`, as they finish; none starts after the deadline.

    One job runs in this process, in order, with its threads. More run in processes of one thread each, to which
    `function` is pickled by name; closing the generator, as by `contextlib.closing`, terminates them at once.
    """
    runs = _here(function, tasks, deadline) if jobs == 1 else _in_processes(function, tasks, jobs, deadline)
    left = yield from runs
    if left:
        tqdm.write(f"the time is up with {left} of {len(tasks)} runs left; run the same command to resume")


def _here(function: Callable[..., Result], tasks: Sequence[Task], deadline: Deadline) -> Runs[Task, Result]:
    for done, task in enumerate(tasks):
        if not deadline.allows():
            return len(tasks) - done
        yield task, function(*task)
    return 0


def _in_processes(
    function: Callable[..., Result], tasks: Sequence[Task], jobs: int, deadline: Deadline
) -> Runs[Task, Result]:
    """Submits at most `jobs` tasks at a time, so that the deadline holds."""
    context = get_context("spawn")
    watched, held = context.Pipe(duplex=False)
    waiting = deque(tasks)
    running: dict[Future[Result], Task] = {}
    with watched, ProcessPoolExecutor(jobs, context, _prepare, (watched,)) as pool, held:
        while True:
            while waiting and len(running) < jobs and deadline.allows():
                task = waiting.popleft()
                running[pool.submit(function, *task)] = task
            if not running:
                pool.shutdown()  # orderly, before `held` is closed
                return len(waiting)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _prepare(watched: Connection) -> None:
    """One thread; ignores Ctrl-C, which the parent handles; exits when the parent's end of the pipe closes."""
    torch.set_num_threads(1)
    tune_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()


def _end_with(watched: Connection) -> None:
    watched.poll(None)  # nothing is ever sent: returns when the parent closes its end or dies
    os._exit(1)
