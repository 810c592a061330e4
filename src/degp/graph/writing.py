"""A module as an ONNX file for any number of points, and its outputs by onnxruntime."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from degp.points import Inputs, count_points, join_points, map_tensors
from degp.runtime.execution.strategies import differentiable_attention
from degp.runtime.files import new_file

__all__ = ["any_number_of", "quiet_exporter", "run_onnx", "write_onnx"]


def any_number_of(example: Inputs) -> Any:
    """Dynamic shapes: the first axis of each tensor."""
    rows = torch.export.Dim("rows")
    return map_tensors(lambda tensor: {0: rows}, example)


def write_onnx(
    graph: nn.Module,
    example: Inputs,
    path: Path | str,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    facts: Mapping[str, str],
) -> Path:
    """Writes a module as an ONNX file that takes any number of points, with `facts` in its metadata.

    Example:
        >>> network, x = mlp(2, [8], 1), torch.zeros(2, 2)
        >>> path = write_onnx(network, x, "network.onnx", inputs=["x"], outputs=["y"], facts={"author": "me"})
        >>> run_onnx(path, data.inputs.numpy())["y"].shape
        (24, 1)
    """
    _require_onnx()
    several = join_points([example, example]) if count_points(example) < 2 else example  # one row would be a constant
    with quiet_exporter(), differentiable_attention(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            (several, {}),  # a dictionary in the last place would be keyword arguments
            dynamo=True,
            input_names=list(inputs),
            dynamic_shapes=(any_number_of(several),),
            optimize=False,  # its rules leave out "+ c" up to c = 1e-8, such as a small noise variance
            verbose=False,
        )
    assert program is not None
    _tidy(program.model)
    _name_outputs(program.model.graph, outputs)
    program.model.metadata_props.update(facts)
    with new_file(Path(path)) as draft:
        program.save(str(draft), external_data=False)
    return Path(path)


def run_onnx(path: Path | str, inputs: np.ndarray | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of an exported graph by name, computed by onnxruntime; several inputs by their names."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    entries = session.get_inputs()
    given = inputs if isinstance(inputs, Mapping) else {entries[0].name: inputs}
    reals = {"tensor(double)": np.float64, "tensor(float)": np.float32}
    values = session.run(None, {e.name: np.asarray(given[e.name], dtype=reals.get(e.type)) for e in entries})
    return {output.name: value for output, value in zip(session.get_outputs(), values, strict=True)}


def _tidy(model: Any) -> None:
    """Computes constants, and stores equal weights once: the exporter transposes shared ones for each member."""
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    common.InlinePass()(model)
    fold_constants(model)
    common.RemoveUnusedNodesPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.ClearMetadataAndDocStringPass()(model)
    common.DeduplicateInitializersPass(size_limit=2**31)(model)


def _name_outputs(graph: Any, names: Sequence[str]) -> None:
    """Names the outputs, and renames inner values that could have one of these names, such as `mean`."""
    for node in graph:
        for value in node.outputs:
            value.name = f"inner_{value.name}"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silences the exporter's messages about itself and about missing libraries."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _require_onnx() -> None:
    try:
        import onnx as _onnx  # noqa: F401
        import onnxscript as _onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(f"exporting needs {error.name}: pip install 'degp[onnx]'") from None
