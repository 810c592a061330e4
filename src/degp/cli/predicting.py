"""`degp predict`: predictions for the rows of a table of any length."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from degp.cli import options
from degp.cli.console import line, print_json
from degp.runtime.files import require_writable

__all__ = ["predict"]


def predict(
    model: options.Model,
    table: Annotated[Path, typer.Argument(help="Rows to predict.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Where to write: a .csv or .parquet file.", show_default=False)],
    level: options.Level = 0.9,
    conformal: Annotated[
        bool, typer.Option("--conformal", help="Conformal intervals, calibrated on validation rows.")
    ] = False,
    id_column: Annotated[
        str | None, typer.Option("--id", help="A column to copy in front of the predictions.", show_default=False)
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict new rows.

    For numbers: mean, epistemic_std, total_std, lower, upper; with several targets, price_mean and so on. For classes:
    prediction, one probability per class, and the epistemic and total uncertainty in nats.
    """
    from degp.tabular.saving import load_model
    from degp.tabular.writing import predict_file

    require_writable(out.parent)
    loaded = load_model(model)
    rows = predict_file(loaded, table, out, level=level, conformal=conformal, id_column=id_column)
    line(f"{rows} predictions: {out}", Console(stderr=json, quiet=quiet))
    if json:
        print_json({"predictions": str(out), "rows": rows})
