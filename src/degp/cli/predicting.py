"""`degp predict`: a column of predictions for each row of a table, however long."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from degp.cli import options
from degp.cli.console import line, print_json
from degp.files import require_writable


def predict(
    model: options.Model,
    table: Annotated[Path, typer.Argument(help="Rows to predict.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Where to write: a .csv or .parquet file.", show_default=False)],
    level: options.Level = 0.9,
    conformal: Annotated[
        bool, typer.Option("--conformal", help="Intervals as wide as the errors on validation rows ask for.")
    ] = False,
    name_column: Annotated[
        str | None, typer.Option("--id", help="A column to keep beside the predictions.", show_default=False)
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict new rows.

    For numbers: mean, epistemic_std, total_std, lower, upper. For classes: prediction, a probability a class, and the
    epistemic and total uncertainty in nats.
    """
    from degp.saving import load_model
    from degp.table_model import predict_file

    require_writable(out.parent)
    loaded = load_model(model)
    rows = predict_file(loaded, table, out, level=level, conformal=conformal, name_column=name_column)
    line(f"{rows} predictions: {out}", Console(stderr=json, quiet=quiet))
    if json:
        print_json({"predictions": str(out), "rows": rows})
