"""`degp data`: the data sets of the experiments, by name."""

from typing import Annotated

import typer
from rich.table import Table

from degp.cli import options
from degp.cli.console import console, line, print_json
from degp.data import data_set, describe_all, locate

app = typer.Typer(help="Data sets by name: what there is, and where it lies.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="As `degp data list` has it.", show_default=False)]


@app.command("list")
def list_sets(json: options.Json = False) -> None:
    """List the data sets and where each lies on this machine."""
    known = describe_all()
    if json:
        print_json({"data_sets": known})
        return
    table = Table("name", "rows", "what it is", "where")
    for record in known:
        rows = "" if record["rows"] is None else f"{record['rows']:,}"
        table.add_row(record["name"], rows, record["description"], record["path"] or "to be fetched")
    console.print(table, markup=False)


@app.command()
def fetch(name: Name) -> None:
    """Download a data set where need be, check it, and print its folder."""
    line(str(locate(name)))


@app.command()
def path(name: Name) -> None:
    """Print the folder of a data set that is on this machine."""
    data_set(name)  # says which there are where there is none of that name
    (known,) = (record for record in describe_all() if record["name"] == name)
    if known["path"] is None:
        raise ValueError(f"data set {name!r} is not on this machine yet; degp data fetch {name} downloads it")
    line(known["path"])
