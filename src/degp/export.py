"""A fitted model as one ONNX graph: features in, predictions and their uncertainty out, without Python or torch.

    export_onnx(DEGPRegressor.load("model"), "model.onnx")

The graph takes what the estimator's preprocessing computes, plain numbers unchanged, with any number of rows. Its
outputs are those of `predict` and `uncertainty`, or of `predict_proba` and `uncertainty` for classes, with the
estimator's own draws of the function stored in the graph.
"""

import copy
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import degp
from degp.data.standardise import Standardiser
from degp.ensemble import Ensemble
from degp.gaussian import Coefficients
from degp.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian
from degp.runtime.execution import NotGroupable, grouped_program
from degp.runtime.files import new_file
from degp.tabular.estimators import DEGPClassifier, DEGPRegressor
from degp.tabular.preprocessing import EncodedRows
from degp.tabular.process import Process

__all__ = ["export_onnx", "max_difference", "run_onnx"]

NUM_DRAWS = 1000  # as in `predict_proba`
Estimator = DEGPRegressor | DEGPClassifier
REGRESSION = ("mean", "epistemic", "aleatoric", "total")
CLASSES = ("probabilities", "epistemic", "aleatoric", "total")


def export_onnx(estimator: Estimator, path: Path | str, *, dtype: torch.dtype = torch.float32) -> Path:
    """Writes the graph atomically: `features` (N, D) to mean or probabilities and the parts of the uncertainty.

    Variances are in the square of the target's unit, uncertainties of classes in nats. Names of the features and of the
    classes are in the file's metadata.

    Args:
        dtype: of inputs, weights and outputs; in float32 the error is about 1e-6 of the target's std.
    """
    check_is_fitted(estimator)
    _require_onnx()
    graph = _graph(estimator).to(dtype).eval()
    names = REGRESSION if isinstance(estimator, DEGPRegressor) else CLASSES
    example = torch.zeros(2, len(estimator.input_scaling_.mean), dtype=dtype)
    with _quiet_exporter(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            (example,),
            dynamo=True,
            input_names=["features"],
            dynamic_shapes={"features": {0: torch.export.Dim("rows")}},
            verbose=False,
        )
    assert program is not None
    _name_outputs(program.model.graph, names)
    program.model.metadata_props.update(_metadata(estimator))
    path = Path(path)
    with new_file(path) as draft:
        program.save(str(draft), external_data=False)
    return path


def run_onnx(path: Path | str, features: Float[np.ndarray, "N D"]) -> dict[str, np.ndarray]:
    """The outputs of an exported graph by name, computed by onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    kind = np.float64 if "double" in entry.type else np.float32
    values = session.run(None, {entry.name: np.asarray(features, dtype=kind)})
    return {output.name: value for output, value in zip(session.get_outputs(), values, strict=True)}


def max_difference(estimator: Estimator, path: Path | str, *, rows: int, random: np.random.Generator) -> float:
    """The largest difference of graph and estimator on random rows, in units of the target's std or in probability."""
    scaling = estimator.input_scaling_
    features = np.array(scaling.mean) + np.array(scaling.std) * random.standard_normal((rows, len(scaling.mean)))
    outputs, encoded = run_onnx(path, features), EncodedRows(features, estimator.preprocessing_)
    if isinstance(estimator, DEGPClassifier):
        return float(np.abs(outputs["probabilities"] - estimator.predict_proba(encoded)).max())
    unit = np.array(estimator.target_scaling_.std)
    spread = np.sqrt(outputs["total"]) - np.sqrt(estimator.uncertainty(encoded).total)
    off = np.stack([outputs["mean"] - estimator.predict(encoded), spread])
    return float((np.abs(off).reshape(2 * rows, -1) / unit).max())


def _graph(estimator: Estimator) -> nn.Module:
    """The prediction as one module of plain operations, from features in original units."""
    if isinstance(estimator, DEGPRegressor):
        return _Regression(estimator)
    return _Classification(estimator)


class _Members(nn.Module):
    """Features (N, D) in original units to the members' outputs (M, N, C)."""

    def __init__(self, ensemble: Ensemble, scaling: Standardiser) -> None:
        super().__init__()
        self.centre, self.width = (nn.Buffer(torch.tensor(values)) for values in (scaling.mean, scaling.std))
        self.stacked = copy.deepcopy(ensemble.stacked)
        self.program = None if self.stacked is None else _program(self.stacked)
        self.separate = nn.ModuleList(ensemble.to_modules()) if self.program is None else None

    def scaled(self, features: Tensor) -> Tensor:
        """Standardised features times their relevance, rounded as the estimator does."""
        return ((features - self.centre) / self.width).float().to(features.dtype)

    def forward(self, features: Tensor) -> Tensor:
        points = self.scaled(features)
        if self.program is None:
            return torch.stack([member(points) for member in self.separate or ()])
        assert self.stacked is not None
        return self.program(dict(self.stacked.named_parameters()), dict(self.stacked.named_buffers()), points)


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


def _process_of(estimator: Estimator) -> _Process:
    return _Process(estimator.method_.epsilon, estimator.coefficients_)


def _arcsin(x: Tensor) -> Tensor:
    """arcsin in float64: onnxruntime has it in float32 only, from which one Newton step leads to sin φ = s.

    |x| > 1/√2 is reflected, arcsin |x| = π/2 − 2 arcsin √((1 − |x|)/2), so that the step is well conditioned.
    """
    size = x.abs()
    is_large = size > 0.5**0.5
    s = torch.where(is_large, ((1 - size).clamp_min(0.0) / 2).sqrt(), size)
    angle = torch.arcsin(s.float()).double()
    angle = angle + (s - angle.sin()) / angle.cos()
    return x.sign() * torch.where(is_large, math.pi / 2 - 2 * angle, angle)


def _relu(covariance: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`priors.analytic.relu` by `_arcsin`."""
    if covariance is left:
        return covariance / 2
    std = (left * right).sqrt()
    cosine = (covariance / std).clamp(-1.0, 1.0)
    return std * ((1 - cosine.square()).sqrt() + (math.pi / 2 + _arcsin(cosine)) * cosine) / (2 * math.pi)


def _erf(covariance: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`priors.analytic.erf` by `_arcsin`."""
    return 2 / math.pi * _arcsin(2 * covariance / ((1 + 2 * left).sqrt() * (1 + 2 * right).sqrt()))


DUALS = {"relu": _relu, "erf": _erf}


class _Exact(nn.Module):
    """Mean and variance of the exact process, for standardised points.        theory/exact.md (1), (2)"""

    def __init__(self, process: Process) -> None:
        super().__init__()
        exact, self.scales = process.exact, process.scales
        identity = torch.eye(len(exact.root), dtype=torch.float64, device=exact.root.device)
        whitener = torch.linalg.solve_triangular(exact.root, identity, upper=False)  # L⁻¹
        # not buffers: they stay in float64 where the networks are exported in float32
        self.relevance = torch.tensor(self.scales.relevance, dtype=torch.float64)
        self.inputs, self.whitener = exact.inputs.double().cpu(), whitener.cpu()
        self.targets = (whitener @ exact.targets).cpu()

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        dual = DUALS[self.scales.activation]
        cross, variance = self.scales.cross_gram(points.double() * self.relevance, self.inputs, dual)
        explained = cross @ self.whitener.mT
        return explained @ self.targets, (variance - explained.square().sum(1)).clamp_min(0.0)[:, None]


class _Served(nn.Module):
    """The average of the ensemble's and the exact process's moments.        theory/gaussian.md (5)"""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.exact, self.weight, self.noise = _Exact(process), process.weight, process.scales.noise_variance

    def forward(self, points: Tensor, mean: Tensor, epistemic: Tensor, aleatoric: Tensor) -> tuple[Tensor, ...]:
        w = self.weight
        own_mean, own_variance = self.exact(points)
        difference = own_mean - mean
        widened = (1 - w) * epistemic + w * own_variance + w * (1 - w) * difference.square()
        results = (mean + w * difference, widened, (1 - w) * aleatoric + w * self.noise)
        return tuple(result.to(mean.dtype) for result in results)


class _Regression(nn.Module):
    def __init__(self, estimator: DEGPRegressor) -> None:
        super().__init__()
        self.members = _Members(estimator.ensemble_, estimator.input_scaling_)
        self.process = _process_of(estimator)
        self.served = _Served(estimator.process_) if estimator.process_ and estimator.process_weight_ else None
        scaling = estimator.target_scaling_
        self.offset, self.unit = (nn.Buffer(torch.tensor(values)) for values in (scaling.mean, scaling.std))
        self.single = estimator.single_target_
        self.by_input = isinstance(estimator.likelihood_, HeteroscedasticGaussian)
        self.mixture = self.process.epsilon == 0 and estimator.coefficients_ is None
        self.log_noise = nn.Buffer(_log_noise(estimator.likelihood_))

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        outputs = self.members(features)
        mean, deviations, nugget = self.process(outputs)
        epistemic = deviations.square().sum(0) + nugget
        C = len(self.offset)
        aleatoric = self._aleatoric(outputs[..., C:], nugget[:, C:]) + 0 * mean[:, :C]
        mean, epistemic = mean[:, :C], epistemic[:, :C]
        if self.served is not None:
            points = self.members.scaled(features)
            mean, epistemic, aleatoric = self.served(points, mean, epistemic, aleatoric)
        square = self.unit.square()
        parts = (
            self.offset + self.unit * mean,
            square * epistemic,
            square * aleatoric,
            square * (epistemic + aleatoric),
        )
        return tuple(part.squeeze(1) for part in parts) if self.single else parts

    def _aleatoric(self, outputs: Tensor, nugget: Tensor) -> Tensor:
        """σ²; or E eˢ if the network predicts the noise, over the members or under q before any update."""
        if not self.by_input:
            return self.log_noise.exp()
        if self.mixture:
            return (outputs + self.log_noise).exp().mean(0)
        mean = outputs.mean(0)
        variance = (outputs - mean).square().mean(0) + nugget
        return (mean + self.log_noise + variance / 2).exp()


class _Classification(nn.Module):
    def __init__(self, estimator: DEGPClassifier) -> None:
        super().__init__()
        assert isinstance(estimator.likelihood_, Categorical)
        self.members = _Members(estimator.ensemble_, estimator.input_scaling_)
        self.process = _process_of(estimator)
        self.temperature = nn.Buffer(estimator.likelihood_.temperature.detach().cpu())
        M, C = len(estimator.ensemble_), len(estimator.classes_)
        generator = torch.Generator(estimator.device).manual_seed(estimator.seed_)
        # the same numbers that `ClassPredictive.from_posterior` draws
        normal = torch.randn(NUM_DRAWS, M + C, dtype=torch.float64, device=estimator.device, generator=generator)
        self.z, self.e = nn.Buffer(normal[:, :M].cpu()), nn.Buffer(normal[:, None, M:].cpu())

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        outputs = self.members(features)
        draws = outputs
        if self.process.epsilon:
            mean, deviations, nugget = self.process(outputs)
            draws = mean + torch.einsum("sm,mnc->snc", self.z, deviations) + nugget.sqrt() * self.e
        each = torch.softmax(draws / self.temperature, dim=-1)
        probabilities = each.mean(0)
        total, aleatoric = _entropy(probabilities), _entropy(each).mean(0)
        return probabilities, total - aleatoric, aleatoric, total


def _entropy(probabilities: Tensor) -> Tensor:
    """−Σ p log p with 0 log 0 = 0, in operations that ONNX supports."""
    tiny = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp_min(tiny).log()).sum(-1)


def _program(stacked: nn.Module) -> Any:
    try:
        return grouped_program(stacked)
    except NotGroupable:
        return None


def _log_noise(likelihood: Any) -> Float[Tensor, ""]:
    if isinstance(likelihood, HeteroscedasticGaussian):
        return likelihood.log_base.detach().cpu()
    assert isinstance(likelihood, Gaussian)
    return likelihood.variance.detach().log().cpu()


def _name_outputs(graph: Any, names: Sequence[str]) -> None:
    """Names the outputs, and renames inner values that could have one of these names, such as `mean`."""
    for node in graph:
        for value in node.outputs:
            value.name = f"inner_{value.name}"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name


def _metadata(estimator: Estimator) -> dict[str, str]:
    facts = {"degp": degp.__version__, "method": estimator.method, "members": len(estimator.ensemble_)}
    facts |= {"features": list(estimator.preprocessing_.features)}
    if isinstance(estimator, DEGPClassifier):
        facts |= {"classes": [str(label) for label in estimator.classes_]}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}


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
