"""What the experiments of many independent runs share: records that are kept, and processes side by side."""

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

from degp.files import require_writable
from degp.imaging import Deadline
from degp.report import load_results

Task = TypeVar("Task", bound=tuple[Any, ...])
Result = TypeVar("Result")
Runs = Generator[tuple[Task, Result], None, int]  # returns how many tasks are left

Jobs = Annotated[int, typer.Option(min=1, help="Processes side by side, one thread each.")]


def earlier_records(out: Path, config: Mapping[str, Any], fields: Sequence[str]) -> list[dict[str, Any]]:
    """What was run before, with the same settings, in a folder that can be written to; a note is no setting.

    Args:
        fields: what tells the runs apart, and every record must have.
    """
    require_writable(out)
    if not (out / "metrics.json").exists():
        return []
    results = load_results(out, fields=fields)
    settings = {name: value for name, value in results["config"].items() if name != "note"}
    if settings != json.loads(json.dumps(config)):
        raise typer.BadParameter(f"{out} holds results with other settings; choose another --out, or take it away")
    return results["records"]


def finished(
    function: Callable[..., Result], tasks: Sequence[Task], *, jobs: int, deadline: Deadline
) -> Generator[tuple[Task, Result], None, None]:
    """Each task with its `function(*task)`, as they end; none begins after the deadline.

    One job is this process, in order, with the threads that it has. More are processes of one thread each, to which
    `function` goes by its name; to close the generator, as `contextlib.closing` does, ends at once what is under way.
    """
    runs = _here(function, tasks, deadline) if jobs == 1 else _in_processes(function, tasks, jobs, deadline)
    left = yield from runs
    if left:
        tqdm.write(f"the time is up, {left} of {len(tasks)} runs are left; the same command goes on from there")


def _here(function: Callable[..., Result], tasks: Sequence[Task], deadline: Deadline) -> Runs[Task, Result]:
    for done, task in enumerate(tasks):
        if not deadline.allows():
            return len(tasks) - done
        yield task, function(*task)
    return 0


def _in_processes(
    function: Callable[..., Result], tasks: Sequence[Task], jobs: int, deadline: Deadline
) -> Runs[Task, Result]:
    """No more than `jobs` are handed out at a time, so that the deadline holds."""
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
                pool.shutdown()  # in peace, before `held` is closed
                return len(waiting)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _prepare(watched: Connection) -> None:
    """One thread; Ctrl-C is for the parent to hear; and the end of the parent's pipe is the end of the process."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()


def _end_with(watched: Connection) -> None:
    watched.poll(None)  # nothing is ever sent: it returns when the parent has closed its end, or has died
    os._exit(1)
