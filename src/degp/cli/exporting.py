"""`degp export`: a model as one ONNX graph, for programs without Python."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console

from degp.cli import options
from degp.cli.console import line, print_json
from degp.runtime.files import require_writable

if TYPE_CHECKING:
    from degp.tabular.saving import Estimator

__all__ = ["export"]


def export(
    model: options.Model,
    onnx: Annotated[Path, typer.Option(help="Where to write the graph.", show_default=False)],
    double: Annotated[bool, typer.Option("--double", help="In float64 instead of float32.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the model as one ONNX graph: features in, prediction and uncertainty out.

    The graph takes the features that the model's preprocessing computes from a table, in the order that is printed. If
    onnxruntime is installed, its outputs are compared with the model's.
    """
    import torch

    from degp.export import export_onnx
    from degp.tabular.saving import load_model

    require_writable(onnx.parent, option="--onnx")
    log, loaded = Console(stderr=json, quiet=quiet), load_model(model, device="cpu")
    try:
        path = export_onnx(loaded.estimator, onnx, dtype=torch.float64 if double else torch.float32)
    except ImportError as error:
        raise ValueError(str(error)) from None
    names = list(loaded.preprocessing.features)
    difference = _difference(loaded.estimator, path)
    line(f"Saved: {path}", log)
    line(f"  takes features (rows, {len(names)}), in this order:", log)
    for place, name in enumerate(names):
        line(f"  {place:5}  {name!r}", log)
    if difference is not None:
        unit = "in probability" if hasattr(loaded.estimator, "classes_") else "of the target's std"
        line(f"  onnxruntime and the model differ by at most {difference:.1e} {unit}", log)
    if json:
        print_json({"onnx": str(path), "features": names, "difference": difference})


def _difference(estimator: "Estimator", path: Path) -> float | None:
    """The largest difference on random rows around the training data's mean; None without onnxruntime."""
    from degp.export import max_difference

    try:
        return max_difference(estimator, path, rows=256, random=np.random.default_rng(0))
    except ModuleNotFoundError:
        return None
