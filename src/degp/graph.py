"""A trained ensemble as one graph: inputs in, predictions and their uncertainty out; for ONNX, or for torch alone.

    export_ensemble(ensemble, method, inputs, "model.onnx")                     # without Python or torch
    torch.export.save(exported_program(ensemble, method, inputs), "model.pt2")  # for torch, AOTInductor, ExecuTorch

The graph takes any number of points. Its outputs are those of `predict`: `mean` or `probabilities`, and `epistemic`,
`aleatoric`, `total`; the draws of the function that probabilities need are stored in it.
"""

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call

from degp.ensemble import Ensemble
from degp.gaussian import Coefficients
from degp.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from degp.methods import Method
from degp.points import Inputs, as_inputs, count_points, join_points, map_tensors, take_points, tensors_of
from degp.runtime.execution import Grouped, NotGroupable, grouped_program
from degp.runtime.execution.strategies import Tensors, differentiable_attention, one_tensor, unstack
from degp.runtime.files import new_file

__all__ = [
    "CLASSES",
    "NUMBERS",
    "Classes",
    "Numbers",
    "export_ensemble",
    "exported_program",
    "graph_entropy",
    "normal_draws",
    "run_onnx",
    "write_onnx",
]

NUMBERS = ("mean", "epistemic", "aleatoric", "total")
Draws = tuple[Float[Tensor, "S M"], Float[Tensor, "S 1 C"]]
CLASSES = ("probabilities", "epistemic", "aleatoric", "total")


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
        >>> path = export_ensemble(ensemble, method, data.inputs[:2], "model.onnx")
        >>> sorted(run_onnx(path, data.inputs.numpy()))
        ['aleatoric', 'epistemic', 'mean', 'total']
    """
    inputs = as_inputs(inputs)
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
        return torch.export.export(graph, (example,), dynamic_shapes=(_any_number_of(example),))


def _prediction(
    ensemble: Ensemble,
    method: Method,
    inputs: Inputs,
    coefficients: Coefficients | None,
    num_draws: int,
    generator: torch.Generator | None,
) -> tuple[nn.Module, Inputs]:
    """The module that a graph is made of, and two points of the inputs."""
    members = _evaluable(ensemble)
    several = join_points([inputs, inputs]) if count_points(inputs) < 2 else inputs  # one row would be a constant
    example = map_tensors(lambda tensor: tensor.detach().cpu(), take_points(several, slice(2)))
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


def _any_number_of(example: Inputs) -> Any:
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
    with _quiet_exporter(), differentiable_attention(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            (several, {}),  # a dictionary in the last place would be keyword arguments
            dynamo=True,
            input_names=list(inputs),
            dynamic_shapes=(_any_number_of(several),),
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


class _Process(nn.Module):
    """q at each point: mean, rotated deviations and λ, conditioned on the labels of later updates.

    m + Aᵀμ,  R⁻¹A,  λ(x) = ε tr k(x, x) / C        theory/posterior.md (3), theory/conditioning.md (3)
    """

    def __init__(self, epsilon: float, coefficients: Coefficients | None) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.updated = coefficients is not None
        if coefficients is not None:
            root = coefficients.precision_root.cpu()
            self.shift = nn.Buffer(coefficients.mean.cpu())
            self.rotation = nn.Buffer(torch.linalg.inv(root))

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = outputs.mean(0)
        deviations = (outputs - mean) / len(outputs) ** 0.5
        variance = deviations.square().sum(0)
        nugget = (self.epsilon * variance.mean(1, keepdim=True)).expand_as(variance)
        if self.updated:
            mean = mean + torch.einsum("m,mnc->nc", self.shift, deviations)
            deviations = torch.einsum("km,mnc->knc", self.rotation, deviations)
        return mean, deviations, nugget


class Numbers(nn.Module):
    """The members' outputs (M, N, C) to mean, epistemic, aleatoric and total variance of real targets.

    Example:
        >>> mean, epistemic, aleatoric, total = Numbers(method, None)(torch.tensor([[[1.0]], [[3.0]]]))
        >>> round(mean.item(), 2), round(epistemic.item(), 2), round(aleatoric.item(), 2)
        (2.0, 1.05, 0.1)
    """

    def __init__(self, method: Method, coefficients: Coefficients | None) -> None:
        super().__init__()
        self.process = _Process(method.epsilon, coefficients)
        self.by_input = isinstance(method.likelihood, HeteroscedasticGaussian)
        self.mixture = method.epsilon == 0 and coefficients is None
        self.log_noise = nn.Buffer(_log_noise(method.likelihood))
        offset, unit = _units(method.likelihood)
        self.offset, self.unit = nn.Buffer(offset), nn.Buffer(unit)

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, deviations, nugget = self.process(outputs)
        C = outputs.shape[2] // 2 if self.by_input else outputs.shape[2]
        epistemic = (deviations.square().sum(0) + nugget)[:, :C]
        aleatoric = self._aleatoric(outputs[..., C:], nugget[:, C:]) + 0 * mean[:, :C]
        squared = self.unit.square()
        total = epistemic + aleatoric
        return self.offset + self.unit * mean[:, :C], squared * epistemic, squared * aleatoric, squared * total

    def _aleatoric(self, outputs: Tensor, nugget: Tensor) -> Tensor:
        """σ²; or E eˢ if the network predicts the noise, over the members or under q before any update."""
        if not self.by_input:
            return self.log_noise.exp()
        if self.mixture:
            return (outputs + self.log_noise).exp().mean(0)
        mean = outputs.mean(0)
        variance = (outputs - mean).square().mean(0) + nugget
        return (mean + self.log_noise + variance / 2).exp()


class Classes(nn.Module):
    """The members' outputs (M, N, C) to probabilities, and epistemic, aleatoric and total uncertainty in nats.

    Example:
        >>> from degp import methods
        >>> draws = normal_draws(1000, M=2, C=3, dtype=torch.float32, generator=None)
        >>> head = Classes(methods.degp(Categorical(), NNGP(depth=1)), draws, None)
        >>> probabilities, epistemic, aleatoric, total = head(torch.zeros(2, 5, 3))
    """

    def __init__(self, method: Method, draws: Draws, coefficients: Coefficients | None) -> None:
        super().__init__()
        assert isinstance(method.likelihood, Categorical)
        self.process = _Process(method.epsilon, coefficients)
        self.temperature = nn.Buffer(method.likelihood.temperature.detach().cpu())
        self.z, self.e = (nn.Buffer(part.cpu()) for part in draws)

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        draws = outputs
        if self.process.epsilon or self.process.updated:
            mean, deviations, nugget = self.process(outputs)
            draws = mean + torch.einsum("sm,mnc->snc", self.z, deviations) + nugget.sqrt() * self.e
        each = torch.softmax(draws / self.temperature, dim=-1)
        probabilities = each.mean(0)
        total, aleatoric = graph_entropy(probabilities), graph_entropy(each).mean(0)
        return probabilities, total - aleatoric, aleatoric, total


def graph_entropy(probabilities: Tensor) -> Tensor:
    """−Σ p log p with 0 log 0 = 0, in operations that ONNX supports.

    Example:
        >>> graph_entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
        tensor([0.0000, 0.6931])
    """
    tiny = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp_min(tiny).log()).sum(-1)


def normal_draws(num_draws: int, M: int, C: int, *, dtype: torch.dtype, generator: torch.Generator | None) -> Draws:
    """The numbers that `ClassPredictive.from_posterior` draws in this precision: of z, and of the white part.

    Example:
        >>> z, e = normal_draws(1000, M=5, C=3, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
        >>> z.shape, e.shape
        (torch.Size([1000, 5]), torch.Size([1000, 1, 3]))
    """
    device = torch.device("cpu") if generator is None else generator.device
    normal = torch.randn(num_draws, M + C, dtype=dtype, device=device, generator=generator)
    return normal[:, :M], normal[:, None, M:]


class _Prediction(nn.Module):
    def __init__(self, members: Ensemble, head: nn.Module) -> None:
        super().__init__()
        self.members, self.head = members, head

    def forward(self, inputs: Inputs) -> tuple[Tensor, ...]:
        return self.head(self.members(inputs))


@dataclass(frozen=True)
class _Unrolled:
    """One member after the other, whose buffers are read only: vmap would fix the batch size in a graph."""

    name: str = "unrolled"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]:
        own = unstack(parameters | buffers)
        return torch.stack([one_tensor(functional_call(module, tensors, (inputs,))) for tensors in own])


def _evaluable(ensemble: Ensemble) -> Ensemble:
    """A copy on the CPU in evaluation mode, run in operations that a graph can hold."""
    members = copy.deepcopy(ensemble.whole()).cpu().eval()
    if members.stacked is not None:
        members.execution = Grouped() if _is_groupable(members, members.stacked) else _Unrolled()
    return members


def _is_groupable(members: Ensemble, stacked: nn.Module) -> bool:
    if not all(members.has_member_axis(f"stacked.{name}") for name in stacked.state_dict()):
        return False  # light members, which share tensors
    try:
        grouped_program(stacked)
    except NotGroupable:
        return False
    return True


def _log_noise(likelihood: Likelihood) -> Float[Tensor, "*C"]:
    if isinstance(likelihood, HeteroscedasticGaussian):
        return likelihood.log_base.detach().cpu()
    if isinstance(likelihood, Gaussian):
        return likelihood.variance.detach().log().cpu()
    raise TypeError(
        f"a graph can have a Gaussian, a HeteroscedasticGaussian or a Categorical likelihood, but this one is a "
        f"{type(likelihood).__name__}; export the members' outputs with torch.onnx.export(ensemble, …)"
    )


def _units(likelihood: Likelihood) -> tuple[Float[Tensor, "*C"], Float[Tensor, "*C"]]:
    if isinstance(likelihood, Gaussian) and likelihood.has_units:
        return likelihood.offset.detach().cpu(), likelihood.unit.detach().cpu()
    return torch.zeros(()), torch.ones(())


def _names(inputs: Inputs) -> list[str]:
    if isinstance(inputs, Mapping) and all(isinstance(value, Tensor) for value in inputs.values()):
        return list(map(str, inputs))
    count = len(tensors_of(inputs))
    return ["inputs"] if count == 1 else [f"inputs_{index}" for index in range(count)]


def _tidy(model: Any) -> None:
    """Leaves out stack traces, and stores equal weights once: the exporter transposes shared ones for each member."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass, DeduplicateInitializersPass

    ClearMetadataAndDocStringPass()(model)
    DeduplicateInitializersPass(size_limit=2**31)(model)


def _name_outputs(graph: Any, names: Sequence[str]) -> None:
    """Names the outputs, and renames inner values that could have one of these names, such as `mean`."""
    for node in graph:
        for value in node.outputs:
            value.name = f"inner_{value.name}"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name


@contextmanager
def _quiet_exporter() -> Iterator[None]:
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
    except ImportError as error:
        raise ImportError(f"exporting needs {error.name}: pip install 'degp[onnx]'") from None
