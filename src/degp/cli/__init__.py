"""The command line: `demo` to begin with; `fit`, `predict`, `evaluate`, `report`, `update`, `export` for tables."""

from typing import Annotated

try:
    import rich as _rich  # noqa: F401
    import typer
except ModuleNotFoundError as missing:
    raise SystemExit(f"the command line needs {missing.name}: pip install 'degp[cli]'") from None

import torch

import degp
from degp.cli import data
from degp.cli.console import Commands, by_first_rank, console
from degp.cli.demo import demo
from degp.cli.exporting import export
from degp.cli.judging import evaluate, report
from degp.cli.predicting import predict
from degp.cli.training import fit, update

app = typer.Typer(
    cls=Commands,
    help="Deep ensembles read as Gaussian processes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, fit, predict, evaluate, report, update, export):
    app.command()(command if command is fit else by_first_rank(command))
app.add_typer(data.app, name="data")


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    """Deep ensembles read as Gaussian processes."""
    if version:
        console.print(f"degp {degp.__version__} (torch {torch.__version__})")
        raise typer.Exit


def main() -> None:
    """Entry point of the `degp` command."""
    app()
