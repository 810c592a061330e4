"""Output and exit codes of the commands: results on stdout, notes and errors on stderr, one line each.

Exit code 0 is success, 2 an error in the command or its data, 130 Ctrl-C, and 1 a bug in degp, with its traceback.
"""

import errno
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
import typer
from rich.console import Console
from typer.core import TyperGroup

from degp.runtime.distributed import launched
from degp.training import NonFiniteLossError

__all__ = ["Commands", "by_first_rank", "console", "line", "notes", "print_json"]

EXTRAS = {"pandas", "sklearn", "pyarrow", "jinja2", "matplotlib", "pooch"}

console = Console()
notes = Console(stderr=True)


class Commands(TyperGroup):
    """A group of commands that report errors and warnings in one line each."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the requested command."""
        with _reported():
            return super().invoke(ctx)


def line(text: str, to: Console = console, **style: Any) -> None:
    """Prints text without wrapping, colours or markup."""
    to.print(text, soft_wrap=True, markup=False, highlight=False, **style)


def print_json(value: dict[str, Any]) -> None:
    """Prints one JSON object on stdout; a number that is not finite becomes null."""
    typer.echo(json.dumps(_finite(value), ensure_ascii=False, allow_nan=False))


def by_first_rank(command: Callable[..., None]) -> Callable[..., None]:
    """The command, run by the first rank only: under `torchrun` every rank would, for example, update the model."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        if launched()[0] == 0:
            command(*arguments, **options)

    return run


@contextmanager
def _reported() -> Iterator[None]:
    """Prints warnings as notes and the errors that users can fix as one line, and exits with their code."""
    with warnings.catch_warnings():
        warnings.showwarning = _WarningPrinter()
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except NonFiniteLossError as error:
            _fail(error, 1)
        except torch.OutOfMemoryError as error:
            _fail(
                f"the members' activations must fit into the memory of the GPU, but it is full "
                f"({str(error).split('. ')[0]}); end other programs on it, or use fewer members; "
                f"run the same command again to resume from the last checkpoint",
                2,
            )
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            _fail(f"this needs {error.name}: pip install 'degp[all]'", 2)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of the output, such as head, has closed it
                raise
            _fail(error, 2)
        except (ValueError, ImportError) as error:
            _fail(error, 2)


def _fail(error: Exception | str, code: int) -> None:
    rank, _ = launched()
    line(f"error{f' on rank {rank}' if rank else ''}: {' '.join(str(error).split())}", notes)
    raise typer.Exit(code) from None


class _WarningPrinter:
    """Prints each warning once, as a note of one line."""

    def __init__(self) -> None:
        self.printed: set[str] = set()

    def __call__(self, message: Warning | str, *rest: Any, **more: Any) -> None:
        note = " ".join(str(message).split())
        if note not in self.printed:
            line(f"note: {note}", notes)
        self.printed.add(note)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
