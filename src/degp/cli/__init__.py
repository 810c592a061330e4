"""The command line: `demo`; and `fit`, `predict`, `evaluate`, `report`, `update`, `export` for tables."""

from typing import Annotated

try:
    import rich as _rich  # noqa: F401
    import typer
except ModuleNotFoundError as missing:
    raise SystemExit(f"the command line needs {missing.name}: pip install 'degp[cli]'") from None

import torch

import degp
from degp.cli.console import Commands, by_first_rank, console
from degp.cli.demo import demo
from degp.cli.evaluating import evaluate, report
from degp.cli.exporting import export
from degp.cli.fitting import fit, update
from degp.cli.predicting import predict
from degp.runtime.cpu import tune_process

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Commands,
    help="Deep ensembles trained as Gaussian processes, with calibrated error bars.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, fit, predict, evaluate, report, update, export):
    app.command()(command if command is fit else by_first_rank(command))


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Deep ensembles trained as Gaussian processes, with calibrated error bars."""
    if version:
        console.print(f"degp {degp.__version__} (torch {torch.__version__})")
        raise typer.Exit


def main() -> None:
    """Entry point of the `degp` command."""
    tune_process()
    app()
