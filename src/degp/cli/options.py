"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer


def require_folder(model: Path) -> Path:
    """The model's folder, if there is one."""
    if not model.exists():
        raise ValueError(
            f"{model} must be a folder that `degp fit` wrote, but it has no model.json: there is no such folder; "
            f"look for a slip in its name, or fit a model there: degp fit TABLE --target COLUMN --out {model}"
        )
    return model


Model = Annotated[
    Path, typer.Argument(callback=require_folder, help="Folder that `degp fit` wrote.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")]
Level = Annotated[float, typer.Option(help="Probability that an interval should hold the true value.")]
Resamples = Annotated[int, typer.Option(min=2, help="Resampled tables behind the intervals of the metrics.")]
