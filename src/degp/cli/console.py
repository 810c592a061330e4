"""What commands say and where: results on stdout, notes and errors on stderr, a line each, and exit codes.

0 is well, 2 a mistake in the command or in its data, 130 Ctrl-C, and 1 a fault of degp, with its traceback.
"""

import errno
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
import typer
from rich.console import Console
from typer.core import TyperGroup

from degp.distributed import launched
from degp.training import NonFiniteLossError

EXTRAS = {"pandas", "sklearn", "pyarrow", "jinja2", "matplotlib", "pooch"}

console = Console()
notes = Console(stderr=True)


class Commands(TyperGroup):
    """A group of commands whose errors are told in a line."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was asked for."""
        with _told():
            return super().invoke(ctx)


def line(text: str, to: Console = console, **style: Any) -> None:
    """Text as it is: no wrapping, no colours, and brackets are brackets."""
    to.print(text, soft_wrap=True, markup=False, highlight=False, **style)


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout; a number that is not finite is null."""
    typer.echo(json.dumps(_finite(value), ensure_ascii=False, allow_nan=False))


def by_first_rank(command: Callable[..., None]) -> Callable[..., None]:
    """A command that one process does, where `torchrun` started several: else each would update a model again."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        if launched()[0] == 0:
            command(*arguments, **options)

    return run


@contextmanager
def _told() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = _Teller()
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except NonFiniteLossError as error:
            _fail(error, 1)
        except torch.OutOfMemoryError as error:
            _fail(
                f"the memory of the GPU must hold the members' activations, but it is full "
                f"({str(error).split('. ')[0]}); end other programs on it, or take fewer members or smaller batches; "
                f"what was saved is whole, and the same command goes on from there",
                2,
            )
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            _fail(f"this needs {error.name}: pip install 'degp[all]'", 2)
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read the output has seen enough
                raise
            _fail(error, 2)
        except (ValueError, ImportError) as error:
            _fail(error, 2)


def _fail(error: Exception | str, code: int) -> None:
    rank, _ = launched()
    line(f"error{f' on rank {rank}' if rank else ''}: {' '.join(str(error).split())}", notes)
    raise typer.Exit(code) from None


class _Teller:
    """Warnings as notes of one line; of those that differ in their counts only, as chunks of a table do, the first."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def __call__(self, message: Warning | str, *rest: Any, **more: Any) -> None:
        kind = re.sub(r" has \d+ (\w+ \w+).*", r" has \1", str(message), flags=re.DOTALL)
        if kind not in self.told:
            line(f"note: {' '.join(str(message).split())}", notes)
        self.told.add(kind)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
