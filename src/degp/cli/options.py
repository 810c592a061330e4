"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[Path, typer.Argument(help="Folder that `degp fit` wrote.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")]
Level = Annotated[float, typer.Option(help="Probability that an interval should hold the true value.")]
Resamples = Annotated[int, typer.Option(min=2, help="Resampled tables behind the intervals of the metrics.")]
