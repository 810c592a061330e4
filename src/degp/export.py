"""A fitted model as one ONNX graph: features in, predictions and their uncertainty out, without Python or torch.

    export_onnx(DEGPRegressor.load("model"), "model.onnx")

The graph takes what the estimator's preprocessing computes, plain numbers unchanged, with any number of rows. Its
outputs are those of `predict` and `uncertainty`, or of `predict_proba` and `uncertainty` for classes, with the
estimator's own draws of the function stored in the graph.
"""

import copy
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import degp
from degp.data.standardise import Standardiser
from degp.ensemble import Ensemble
from degp.graph import CLASSES, NUMBERS, Classes, Numbers, graph_entropy, normal_draws, run_onnx, write_onnx
from degp.priors.evidence import Scales
from degp.priors.exact import ExactGP
from degp.runtime.execution import grouped_program, is_groupable
from degp.tabular.class_process import ClassProcess
from degp.tabular.classifier import DEGPClassifier
from degp.tabular.embedding import Embedding
from degp.tabular.preprocessing import EncodedRows
from degp.tabular.process import Process
from degp.tabular.regressor import DEGPRegressor

__all__ = ["export_onnx", "max_difference", "run_onnx"]

NUM_DRAWS = 1000  # as in `predict_proba`
Estimator = DEGPRegressor | DEGPClassifier


def export_onnx(estimator: Estimator, path: Path | str, *, dtype: torch.dtype = torch.float32) -> Path:
    """Writes the graph atomically: `features` (N, D) to mean or probabilities and the parts of the uncertainty.

    Variances are in the square of the target's unit, uncertainties of classes in nats. Names of the features and of the
    classes are in the file's metadata.

    Args:
        dtype: of inputs, weights and outputs; in float32 the error is about 1e-6 of the target's std.
    """
    check_is_fitted(estimator)
    graph = _graph(estimator).to(dtype).eval()
    names = NUMBERS if isinstance(estimator, DEGPRegressor) else CLASSES
    example = torch.zeros(2, estimator.embedding_.num_features, dtype=dtype)
    return write_onnx(graph, example, path, inputs=["features"], outputs=names, facts=_metadata(estimator))


def max_difference(estimator: Estimator, path: Path | str, *, rows: int, random: np.random.Generator) -> float:
    """The largest difference of graph and estimator on random rows, in probability, or in units of the target's std.

    Under the log the unit at a target y is y times the std of the log.

    Example:
        >>> model = DEGPClassifier(random_state=0).fit(X, y)
        >>> path = export_onnx(model, "model.onnx")
        >>> max_difference(model, path, rows=100, random=np.random.default_rng(0)) < 1e-4
        True
    """
    scaling, D = estimator.input_scaling_, estimator.embedding_.num_features
    features = np.array(scaling.mean[:D]) + np.array(scaling.std[:D]) * random.standard_normal((rows, D))
    outputs, encoded = run_onnx(path, features), EncodedRows(features, estimator.preprocessing_)
    if isinstance(estimator, DEGPClassifier):
        return float(np.abs(outputs["probabilities"] - estimator.predict_proba(encoded)).max())
    mean = np.asarray(estimator.predict(encoded))
    spread = np.sqrt(outputs["total"]) - np.sqrt(estimator.uncertainty(encoded).total)
    off = np.abs(np.stack([outputs["mean"] - mean, spread])).reshape(2, rows, -1)
    return float((off / estimator.units_.slope(torch.tensor(mean.reshape(rows, -1))).numpy()).max())


def _graph(estimator: Estimator) -> nn.Module:
    """The prediction as one module of plain operations, from features in original units."""
    if isinstance(estimator, DEGPRegressor):
        return _Regression(estimator)
    return _Classification(estimator)


class _Members(nn.Module):
    """Features (N, D) in original units to the members' outputs (M, N, C)."""

    def __init__(self, ensemble: Ensemble, embedding: Embedding, scaling: Standardiser) -> None:
        super().__init__()
        self.embedding = embedding
        self.centre, self.width = (
            nn.Buffer(torch.tensor(values, dtype=torch.float64)) for values in (scaling.mean, scaling.std)
        )
        self.stacked = copy.deepcopy(ensemble.stacked)
        self.program = grouped_program(self.stacked) if self.stacked and is_groupable(self.stacked) else None
        self.separate = nn.ModuleList(ensemble.to_modules()) if self.program is None else None

    def scaled(self, features: Tensor) -> Tensor:
        """Standardised inputs times their relevance, rounded as the estimator does."""
        return ((self.embedding.apply(features) - self.centre) / self.width).float().to(features.dtype)

    def forward(self, features: Tensor) -> Tensor:
        points = self.scaled(features)
        if self.program is None:
            return torch.stack([member(points) for member in self.separate or ()])
        assert self.stacked is not None
        return self.program(dict(self.stacked.named_parameters()), dict(self.stacked.named_buffers()), points)


def _arcsin(x: Tensor) -> Tensor:
    """arcsin in float64: onnxruntime has it in float32 only, from which one Newton step leads to sin φ = s.

    |x| > 1/√2 is reflected, arcsin |x| = π/2 − 2 arcsin √((1 − |x|)/2), so that the step is well conditioned.
    """
    size = x.abs()
    is_large = size > 0.5**0.5
    s = torch.where(is_large, ((1 - size).clamp_min(0.0) / 2).sqrt(), size)
    angle = torch.arcsin(s.float()).double()
    angle = angle + (s - angle.sin()) / angle.cos()
    return x.sign() * torch.where(is_large, _pi(x) / 2 - 2 * angle, angle)


def _pi(like: Tensor) -> Tensor:
    """π as a tensor: numbers enter a graph in float32, whose π is wrong by 9e-8."""
    return like.new_tensor(math.pi)


def _relu(covariance: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`priors.relu` by `_arcsin`."""
    if covariance is left:
        return covariance / 2
    std = (left * right).sqrt()
    cosine = (covariance / std).clamp(-1.0, 1.0)
    pi = _pi(covariance)
    return std * ((1 - cosine.square()).sqrt() + (pi / 2 + _arcsin(cosine)) * cosine) / (2 * pi)


def _erf(covariance: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`priors.erf` by `_arcsin`."""
    return 2 / _pi(covariance) * _arcsin(2 * covariance / ((1 + 2 * left).sqrt() * (1 + 2 * right).sqrt()))


DUALS = {"relu": _relu, "erf": _erf}


class _Exact(nn.Module):
    """Means (E, N, C) and variances (E, N) of exact processes, from standardised points.    theory/exact.md (1), (2)"""

    def __init__(self, scales: Scales, processes: Sequence[ExactGP]) -> None:
        super().__init__()
        self.scales, roots = scales, torch.stack([exact.root for exact in processes])
        identity = torch.eye(roots.shape[1], dtype=torch.float64, device=roots.device)
        whitener = torch.linalg.solve_triangular(roots, identity, upper=False)  # L⁻¹
        # not buffers: they stay in float64 where the networks are exported in float32
        self.relevance = torch.tensor(scales.relevance, dtype=torch.float64)
        self.inputs, self.whitener = processes[0].inputs.double().cpu(), whitener.cpu()
        self.targets = (whitener @ torch.stack([exact.targets for exact in processes])).cpu()

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        dual = DUALS[self.scales.activation]
        cross, variance = self.scales.cross_gram(points.double() * self.relevance, self.inputs, dual)
        explained = cross @ self.whitener.mT
        return explained @ self.targets, (variance - explained.square().sum(2)).clamp_min(0.0)


class _Served(nn.Module):
    """The average of the ensemble's and the exact process's moments.        theory/gaussian.md (5)"""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.exact, self.weight = _Exact(process.scales, [process.exact]), process.weight
        self.noise = process.scales.noise_variance

    def forward(self, points: Tensor, mean: Tensor, epistemic: Tensor, aleatoric: Tensor) -> tuple[Tensor, ...]:
        w = self.weight
        (own_mean,), (own_variance,) = self.exact(points)
        difference = own_mean - mean
        widened = (1 - w) * epistemic + w * own_variance[:, None] + w * (1 - w) * difference.square()
        results = (mean + w * difference, widened, (1 - w) * aleatoric + w * self.noise)
        return tuple(result.to(mean.dtype) for result in results)


class _ServedClasses(nn.Module):
    """The mixture of the ensemble and the exact processes of the classes.        theory/exact.md (8)"""

    def __init__(self, process: ClassProcess) -> None:
        super().__init__()
        self.exact, self.prior_mean = _Exact(process.scales, process.exact), process.prior_mean.cpu()
        self.weight, self.temperature, C = process.weight, process.temperature, process.num_classes
        self.draws = normal_draws(NUM_DRAWS, 0, C, dtype=torch.float64, generator=process.generator())[1].cpu()

    def forward(self, points: Tensor, probabilities: Tensor, aleatoric: Tensor) -> tuple[Tensor, ...]:
        w = self.weight
        mean, variance = self.exact(points)
        functions = self.prior_mean + mean.squeeze(2).mT + variance.mT.sqrt() * self.draws
        each = torch.softmax(functions / self.temperature, dim=-1)
        mixture = (1 - w) * probabilities.double() + w * each.mean(0)
        total, expected = graph_entropy(mixture), (1 - w) * aleatoric.double() + w * graph_entropy(each).mean(0)
        return tuple(result.to(probabilities.dtype) for result in (mixture, total - expected, expected, total))


class _Regression(nn.Module):
    def __init__(self, estimator: DEGPRegressor) -> None:
        super().__init__()
        self.members = _Members(estimator.ensemble_, estimator.embedding_, estimator.input_scaling_)
        self.numbers = Numbers(estimator.method_, estimator.coefficients_)
        self.served = _Served(estimator.process_) if estimator.process_ and estimator.process_weight_ else None
        scaling, self.transform = estimator.target_scaling_, estimator.target_transform_
        self.offset, self.unit = (
            nn.Buffer(torch.tensor(values, dtype=torch.float64)) for values in (scaling.mean, scaling.std)
        )
        self.missing_noise = estimator.missing_noise_
        self.single = estimator.single_target_

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        mean, epistemic, aleatoric, _ = self.numbers(self.members(features))
        points = self.members.scaled(features)
        if self.served is not None:
            mean, epistemic, aleatoric = self.served(points, mean, epistemic, aleatoric)
        if self.missing_noise.places:
            aleatoric = aleatoric * self.missing_noise.factor(points)[:, None]
        square = self.unit.square()
        moments = self.transform.moments(self.offset + self.unit * mean, square * epistemic, square * aleatoric)
        parts = (*moments, moments.epistemic + moments.aleatoric)
        return tuple(part.squeeze(1) for part in parts) if self.single else parts


class _Classification(nn.Module):
    def __init__(self, estimator: DEGPClassifier) -> None:
        super().__init__()
        self.members = _Members(estimator.ensemble_, estimator.embedding_, estimator.input_scaling_)
        M, C = len(estimator.ensemble_), len(estimator.classes_)
        generator = torch.Generator(estimator.device).manual_seed(estimator.seed_)
        draws = normal_draws(NUM_DRAWS, M, C, dtype=torch.float64, generator=generator)
        self.classes = Classes(estimator.method_, draws, estimator.coefficients_)
        self.served = None if estimator.process_ is None else _ServedClasses(estimator.process_)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        probabilities, epistemic, aleatoric, total = self.classes(self.members(features))
        if self.served is None:
            return probabilities, epistemic, aleatoric, total
        return self.served(self.members.scaled(features), probabilities, aleatoric)


def _metadata(estimator: Estimator) -> dict[str, str]:
    facts = {"degp": degp.__version__, "method": estimator.method, "members": len(estimator.ensemble_)}
    facts |= {"features": list(estimator.preprocessing_.features)}
    if isinstance(estimator, DEGPClassifier):
        facts |= {"classes": [str(label) for label in estimator.classes_]}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}
