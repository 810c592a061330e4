"""Arguments and options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Json", "Level", "Model", "Quiet", "Resamples", "require_folder"]


def require_folder(model: Path) -> Path:
    """The model's folder; raises ValueError if there is none."""
    if not model.exists():
        raise ValueError(
            f"{model} must be a folder that `degp fit` wrote, but it has no model.json: there is no such folder; "
            f"check its name, or fit a model there: degp fit TABLE --target COLUMN --out {model}"
        )
    return model


Model = Annotated[
    Path, typer.Argument(callback=require_folder, help="Folder that `degp fit` wrote.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")]
Level = Annotated[float, typer.Option(help="Probability with which an interval should contain the true value.")]
Resamples = Annotated[int, typer.Option(min=2, help="Bootstrap samples for the intervals of the metrics.")]
