"""Ensembles as graphs: members in operations that a graph can hold, and the method's predictive distribution."""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.func import functional_call

from degp.ensemble import Ensemble
from degp.gaussian import Coefficients
from degp.graph.distributions import CLASSES, NUMBERS, Classes, Numbers, normal_draws
from degp.graph.writing import any_number_of, quiet_exporter, write_onnx
from degp.likelihoods import Categorical
from degp.methods import Method
from degp.points import Inputs, as_inputs, count_points, join_points, map_tensors, take_points, tensors_of
from degp.runtime.execution import Grouped, Vmap, is_groupable
from degp.runtime.execution.strategies import Tensors, differentiable_attention, one_tensor, unstack

__all__ = ["export_ensemble", "exported_program"]


def export_ensemble(
    ensemble: Ensemble,
    method: Method,
    inputs: Inputs,
    path: Path | str,
    *,
    coefficients: Coefficients | None = None,
    num_draws: int = 1000,
    generator: torch.Generator | None = None,
) -> Path:
    """Writes the graph of `predict(ensemble, …, method)` atomically.

    Args:
        inputs: an example with any number of points; the graph's inputs have its dtype, and its shape after the first
            axis. Entries of a dictionary keep their names.
        coefficients, num_draws: as in `predict`.
        generator: of the draws; with the same seed as `predict`'s the probabilities are the same.

    Example:
        >>> from degp.graph import run_onnx
        >>> path = export_ensemble(ensemble, method, data.inputs[:2], "model.onnx")
        >>> sorted(run_onnx(path, data.inputs.numpy()))
        ['aleatoric', 'epistemic', 'mean', 'total']
    """
    inputs = as_inputs(inputs)
    _warn_of_bfloat16(ensemble)
    graph, example = _prediction(ensemble, method, inputs, coefficients, num_draws, generator)
    return write_onnx(
        graph,
        example,
        path,
        inputs=_names(inputs),
        outputs=CLASSES if isinstance(method.likelihood, Categorical) else NUMBERS,
        facts={"members": str(len(ensemble))},
    )


def exported_program(
    ensemble: Ensemble,
    method: Method,
    inputs: Inputs,
    *,
    coefficients: Coefficients | None = None,
    num_draws: int = 1000,
    generator: torch.Generator | None = None,
) -> torch.export.ExportedProgram:
    """The same graph for torch: `program.module()(inputs)` gives the outputs in the order of `NUMBERS` or `CLASSES`.

    Arguments as in `export_ensemble`. On the CPU; `torch.export.passes.move_to_device_pass` moves it.

    Example:
        >>> program = exported_program(ensemble, method, data.inputs[:2])
        >>> mean, epistemic, aleatoric, total = program.module()(data.inputs)
        >>> mean.shape
        torch.Size([24, 1])
    """
    graph, example = _prediction(ensemble, method, as_inputs(inputs), coefficients, num_draws, generator)
    with differentiable_attention(), torch.no_grad():
        return torch.export.export(graph, (example,), dynamic_shapes=(any_number_of(example),))


def _warn_of_bfloat16(ensemble: Ensemble) -> None:
    if any(tensor.dtype == torch.bfloat16 for tensor in ensemble.state_dict().values()):
        warnings.warn(
            "the graph has bfloat16 weights, which onnxruntime cannot run on a CPU; for a graph that runs there, call "
            "float() of the ensemble (.ensemble of an attached predictor), and export it with inputs in float32",
            stacklevel=3,
        )


def _prediction(
    ensemble: Ensemble,
    method: Method,
    inputs: Inputs,
    coefficients: Coefficients | None,
    num_draws: int,
    generator: torch.Generator | None,
) -> tuple[nn.Module, Inputs]:
    """The module that a graph is made of, and two points of the inputs."""
    several = join_points([inputs, inputs]) if count_points(inputs) < 2 else inputs  # one row would be a constant
    example = map_tensors(lambda tensor: tensor.detach().cpu(), take_points(several, slice(2)))
    members = _evaluable(ensemble, example)
    if isinstance(method.likelihood, Categorical):
        with torch.no_grad():
            q = method.posterior(members(example), coefficients)
        (M, _, C), precision = q.shape, q.mean.dtype
        draws = normal_draws(num_draws, M, C, dtype=precision, generator=generator)
        head: nn.Module = Classes(method, draws, coefficients)
    else:
        head = Numbers(method, coefficients)
    dtype = next((p.dtype for p in members.parameters() if p.is_floating_point()), torch.float32)
    return _Prediction(members, head.to(dtype)).eval(), example


class _Prediction(nn.Module):
    def __init__(self, members: Ensemble, head: nn.Module) -> None:
        super().__init__()
        self.members, self.head = members, head

    def forward(self, inputs: Inputs) -> tuple[Tensor, ...]:
        return self.head(self.members(inputs))


@dataclass(frozen=True)
class _Unrolled:
    """One member after the other, whose buffers are read only: where vmap would fix the batch size in a graph."""

    name: str = "unrolled"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]:
        own = unstack(parameters | buffers)
        return torch.stack([one_tensor(functional_call(module, tensors, (inputs,))) for tensors in own])


def _evaluable(ensemble: Ensemble, example: Inputs) -> Ensemble:
    """A copy on the CPU in evaluation mode, run in operations that a graph can hold."""
    members = copy.deepcopy(ensemble.whole()).cpu().eval()
    if members.stacked is not None:
        members.execution = Grouped() if _is_groupable(members, members.stacked) else Vmap()
        if members.execution == Vmap() and not _takes_any_number(members, example):
            members.execution = _Unrolled()
    return members


def _takes_any_number(members: Ensemble, example: Inputs) -> bool:
    """Whether the graph of these members has a dynamic batch; vmap fixes it in layers such as convolutions."""
    try:
        with quiet_exporter(), differentiable_attention(), torch.no_grad():
            torch.export.export(members, (example,), dynamic_shapes=(any_number_of(example),))
    except Exception:  # of many kinds, by the operation without a dynamic form
        return False
    return True


def _is_groupable(members: Ensemble, stacked: nn.Module) -> bool:
    """Whether members that share no tensors, unlike light ones, have a grouped form."""
    return all(members.has_member_axis(f"stacked.{name}") for name in stacked.state_dict()) and is_groupable(stacked)


def _names(inputs: Inputs) -> list[str]:
    if isinstance(inputs, Mapping) and all(isinstance(value, Tensor) for value in inputs.values()):
        return list(map(str, inputs))
    count = len(tensors_of(inputs))
    return ["inputs"] if count == 1 else [f"inputs_{index}" for index in range(count)]
