"""`python -m benchmarks [NAME …]`: runs the named benchmarks, by default all; `--out FOLDER` saves the numbers."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import (
    context,
    convolutions,
    decisions,
    divergence,
    estimators,
    graphs,
    heads,
    images,
    light,
    members,
    messages,
    ranks,
    rows,
    shipping,
    steps,
    tables,
    tiles,
)
from degp.report import save_results
from degp.runtime.cpu import tune_process
from degp.runtime.files import require_writable

BENCHMARKS = {
    "steps": steps,
    "members": members,
    "light": light,
    "heads": heads,
    "divergence": divergence,
    "estimators": estimators,
    "rows": rows,
    "tables": tables,
    "decisions": decisions,
    "images": images,
    "context": context,
    "messages": messages,
    "convolutions": convolutions,
    "tiles": tiles,
    "shipping": shipping,
    "graphs": graphs,
    "ranks": ranks,
}
NEED_A_GPU = ("images", "context", "messages", "convolutions", "tiles")


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"Any of {', '.join(BENCHMARKS)}.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for metrics.json.")] = None,
) -> None:
    """Run benchmarks and print each as a table."""
    console = Console()
    chosen = names or list(BENCHMARKS)
    unknown = set(chosen) - BENCHMARKS.keys()
    if unknown:
        raise typer.BadParameter(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if out is not None:
        _require_writable(out)
    records: list[dict[str, Any]] = []
    for name in chosen:
        if name in NEED_A_GPU and not torch.cuda.is_available():
            typer.echo(f"{name} needs a GPU, but torch finds none; skipped")
            continue
        rows = BENCHMARKS[name].run()
        console.print(_table(BENCHMARKS[name].__doc__ or name, rows))
        records += [{"benchmark": name, **row} for row in rows]
        if out is not None:  # after each, so that none is lost when a later one fails
            save_results(out, config={"names": chosen, "threads": torch.get_num_threads()}, records=records)


def _require_writable(out: Path) -> None:
    try:
        require_writable(out)
    except OSError as error:
        raise typer.BadParameter(str(error)) from None


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title.strip())
    for heading in rows[0]:
        table.add_column(heading, justify="left" if isinstance(rows[0][heading], str) else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(heading, "")) for heading in rows[0]))
    return table


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    tune_process()
    typer.run(main)
