"""`python -m experiments data`: lists, downloads and locates the data sets of the experiments."""

from typing import Annotated

import typer
from rich.table import Table

from degp.cli import options
from degp.cli.console import console, line, print_json
from experiments.data import data_set, describe_all, locate

__all__ = ["app"]

app = typer.Typer(help="List, download and locate data sets.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name that `python -m experiments data list` shows.", show_default=False)]


@app.command("list")
def list_sets(json: options.Json = False) -> None:
    """List the data sets and their folders on this machine."""
    known = describe_all()
    if json:
        print_json({"data_sets": known})
        return
    table = Table("name", "rows", "description", "folder")
    for record in known:
        rows = "" if record["rows"] is None else f"{record['rows']:,}"
        table.add_row(record["name"], rows, record["description"], record["path"] or "not downloaded")
    console.print(table, markup=False)


@app.command()
def fetch(name: Name) -> None:
    """Download a data set if necessary, verify it, and print its folder."""
    line(str(locate(name)))


@app.command()
def path(name: Name) -> None:
    """Print the folder of a data set that is on this machine."""
    data_set(name)  # an unknown name raises an error that lists the known ones
    (known,) = (record for record in describe_all() if record["name"] == name)
    if known["path"] is None:
        raise ValueError(
            f"data set {name!r} must be on this machine, but it is not; run python -m experiments data fetch {name}"
        )
    line(known["path"])
