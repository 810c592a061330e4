"""Light members on a trained network, in one call: cached features, prior scales by evidence, DE-GP heads."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from degp.data.batches import batches_of
from degp.ensemble import Ensemble
from degp.ensemble.layers import is_linear, with_layers
from degp.ensemble.modes import evaluation
from degp.ensemble.stacking import replaced
from degp.features import cache_features
from degp.graph import export_ensemble
from degp.likelihoods import Categorical, Gaussian
from degp.methods import DEGP, Method, degp
from degp.nets import mlp
from degp.points import Inputs
from degp.prediction import predict
from degp.predictive import Predictive
from degp.priors.analytic import NNGP
from degp.priors.evidence import Scales, most_likely_scales
from degp.priors.exact import ExactGP
from degp.runtime.files import read_json, write_json
from degp.training import Captured, Eager, History, Plan, adam, fit
from degp.training.schedules import EachStep
from degp.typing import Batch

__all__ = ["Attached", "as_real", "attach", "draw_heads", "scaled_components", "train_heads"]

FACTS = "predictor.json"
RATE = 3e-3
EVIDENCE_ROWS = 1024  # more change the scales of 128 components little


@dataclass(frozen=True)
class Attached:
    """Heads on a trained network that predict with uncertainty.

    Attributes:
        ensemble: the heads, with the network up to its last layer as a frozen backbone.
        method: DE-GP, as the heads were trained.
        scales: of the prior over functions of the features.
    """

    ensemble: Ensemble
    method: DEGP
    scales: Scales | None = None

    def predict(self, inputs: Inputs, *, generator: torch.Generator | None = None) -> Predictive:
        """The predictive distribution of new targets, from the network's own inputs."""
        return predict(self.ensemble, inputs, self.method, generator=generator)

    def save(self, folder: Path | str) -> None:
        """Saves everything that `load` needs to a new folder, without pickle."""
        self.ensemble.save(folder)
        likelihood = self.method.likelihood
        noise = float(likelihood.variance) if isinstance(likelihood, Gaussian) else None
        unit_length = isinstance(_layers(self.ensemble.backbone)[-1], nn.RMSNorm)
        facts = {"noise_variance": noise, "epsilon": self.method.epsilon, "unit_length": unit_length}
        write_json(Path(folder) / FACTS, facts)

    def export(self, inputs: Inputs, path: Path | str, *, generator: torch.Generator | None = None) -> Path:
        """Writes network and heads as one ONNX graph, for any number of points; `inputs` are an example."""
        return export_ensemble(self.ensemble, self.method, inputs, path, generator=generator)

    @classmethod
    def load(cls, folder: Path | str, network: nn.Module | None = None, *, layer: str | None = None) -> "Attached":
        """What `save` wrote.

        Args:
            network: the one that members were attached to, with any weights; needed unless it is an `nn.Sequential` of
                torch's layers.
            layer: as in `attach`.
        """
        backbone, saved = None, read_json(Path(folder) / FACTS)
        if network is not None:
            body, last = _without_layer(network, layer)
            components = _num_components(read_json(Path(folder) / "ensemble.json"))
            norm = [nn.RMSNorm(components)] if saved.get("unit_length") else []
            features = last.get_parameter("weight").shape[1]
            backbone = nn.Sequential(body, nn.Linear(features, components), *norm)
        noise = saved["noise_variance"]
        likelihood = Categorical() if noise is None else Gaussian(noise)
        return cls(Ensemble.load(folder, backbone=backbone), degp(likelihood, NNGP(1), epsilon=saved["epsilon"]))


def attach(
    network: nn.Module,
    data: Any,
    *,
    layer: str | None = None,
    members: int = 100,
    width: int = 256,
    components: int = 128,
    steps: int = 2000,
    batch_size: int = 256,
    path: Path | str | None = None,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Attached:
    """Uncertainty for a trained network: its last linear layer is replaced by M heads, trained as DE-GP with α = 1.

        attached = attach(network, loader)
        prediction = attached.predict(inputs)   # mean and std, or probabilities; epistemic, aleatoric

    The network is not changed. Each point passes it once; the prior is the NN-GP of the features' first principal
    components (`scaled_components`), with scales that maximise the evidence.

    Args:
        network: trained, on the device where it is to run.
        data: a DataLoader, a Dataset, a `Batch` or an iterable of batches; whole-number targets are classes.
        layer: the name of the layer to replace; by default the last linear one.
        members: M.
        width: units of each head's hidden layer.
        components: at most so many principal components of the features.
        steps: of Adam at 3e-3 with a cosine schedule, up to whole epochs; too few leave the heads near the prior.
        batch_size: of these steps.
        path: a file to cache the features in.
        generator: for all draws, on the network's device.
        progress: a progress bar; by default where the output is a terminal.
    """
    body, last = _without_layer(network, layer)
    _require_last(network, body, last, next(iter(batches_of(data, device=_device(network)))).inputs)
    features = cache_features(body, data, path=path)
    targets, unit, offset = _standardised(features.targets)
    rows = replace(features, targets=targets)
    projection, scales = scaled_components(rows, components, generator=generator)
    backbone, classes = nn.Sequential(body, *projection), not targets.is_floating_point()
    ensemble = draw_heads(scales, members, width, _num_outputs(targets), backbone=backbone, generator=generator)
    method = degp(Categorical() if classes else Gaussian(scales.noise_variance, learned=True), scales.nngp())
    points = replace(rows, inputs=projection(rows.inputs).detach())
    heads = ensemble.on_features()
    train_heads(heads, points, method, steps=steps, batch_size=batch_size, generator=generator, progress=progress)
    ensemble.execution = heads.execution
    if not classes:
        _rescale(ensemble, method, unit, offset)
    return Attached(ensemble.eval(), method.requires_grad_(False), scales)


def _without_layer(network: nn.Module, name: str | None) -> tuple[nn.Module, nn.Module]:
    """The network up to a linear layer, frozen, with the network's own weights; and that layer."""
    linear = {key: layer for key, layer in network.named_modules() if is_linear(layer)}
    chosen = name if name is not None else next(reversed(linear), None)
    if chosen is None or chosen not in linear:
        known = ", ".join(linear) or "none"
        raise ValueError(f"members replace a linear layer of the network, but {chosen!r} is none; there are: {known}")
    body = replaced(network, lambda tensors: tensors[0].detach(), [network]).requires_grad_(False).eval()
    return with_layers(body, lambda key, layer: nn.Identity() if key == chosen else None), linear[chosen]


@torch.no_grad()
def _require_last(network: nn.Module, body: nn.Module, last: nn.Module, inputs: Inputs) -> None:
    """Raises where the network is not `last` of the features; a layer in the middle may not even fit them."""
    try:
        with evaluation(network):
            features = body(inputs)
            same = features.ndim == 2 and torch.allclose(last(features), network(inputs), rtol=1e-3, atol=1e-4)
    except (RuntimeError, AttributeError):
        same = False
    if not same:
        raise ValueError(
            "the layer that members replace must map features (N, D) to the network's outputs, but it does not; pass "
            "the name of the last layer as layer=…, or a network that ends with a linear layer"
        )


def scaled_components(
    features: Batch, most: int, *, generator: torch.Generator | None = None
) -> tuple[nn.Sequential, Scales]:
    """Features to their first principal components, scaled for the prior; and the prior's scales, by evidence.

    Three forms compete: components at one common scale, the same with vectors of equal length, and one relevance per
    component. The lowest NLL on held-out rows wins. The evidence cannot choose: on images it prefers 128 relevances,
    and predicts worse with them.

    Args:
        features: with classes, or with standardised real targets.
        most: components.
        generator: for the rows that the evidence is measured on.
    """
    projection = _principal_components(features.inputs, most)
    kept = projection.out_features
    plain = nn.Sequential(projection)
    equal = nn.Sequential(projection, nn.RMSNorm(kept).to(projection.weight).requires_grad_(False))
    forms = [_Form(plain, (0,) * kept), _Form(equal, (0,) * kept), _Form(plain, tuple(range(kept)))]
    rows = features[_some_rows(features, generator)]
    best = min(forms, key=lambda form: form.held_out_nll(rows))
    scales = best.fitted(rows)
    _apply(scales, best.layers[-1])
    return best.layers, scales


@dataclass(frozen=True)
class _Form:
    """Layers from features to points, and the group of each component; one relevance per group."""

    layers: nn.Sequential
    groups: tuple[int, ...]

    def fitted(self, rows: Batch) -> Scales:
        points, targets = self.layers(rows.inputs).detach(), as_real(rows.targets)
        return most_likely_scales(points, targets, 1, weights=rows.weights, groups=self.groups, most_rows=len(rows))

    def held_out_nll(self, rows: Batch) -> float:
        """−log p(y) of every second row, given the others and the scales that they prefer."""
        known, new = rows[::2], rows[1::2]
        scales = self.fitted(known)
        left, right = (scales.apply(self.layers(part.inputs).detach()) for part in (known, new))
        y, truth = as_real(rows.targets)[::2], as_real(rows.targets)[1::2]
        noise = scales.noise_variance if known.weights is None else scales.noise_variance / known.weights
        process = ExactGP.fit(scales.nngp(), left, y, noise_variance=noise)
        variance = process.variance(right)[:, None] + scales.noise_variance
        return float((variance.log() + (truth - process.mean(right)).square() / variance).mean())


def _some_rows(features: Batch, generator: torch.Generator | None) -> Int[Tensor, "N"]:
    """At most EVIDENCE_ROWS random rows, of positive weight."""
    order = torch.randperm(len(features), generator=generator, device=features.device)
    return (order if features.weights is None else order[features.weights[order] > 0])[:EVIDENCE_ROWS]


@torch.no_grad()
def _apply(scales: Scales, layer: nn.Module) -> None:
    """Makes the relevance part of the layer that gives the points."""
    weight = layer.get_parameter("weight")
    weight.copy_(scales.apply(weight.t()).t())
    if isinstance(layer, nn.Linear):
        layer.bias.copy_(scales.apply(layer.bias))


def _principal_components(features: Float[Tensor, "N D"], most: int) -> nn.Linear:
    """x ↦ (x − μ) V / s: the first principal components in one common unit, so that their mean variance is one."""
    x = features.double()
    mean = x.mean(0)
    variances, vectors = torch.linalg.eigh((x - mean).mT @ (x - mean) / len(x))  # ascending
    kept = max(1, min(most, int((variances > 1e-12 * variances[-1]).sum())))
    variances, vectors = variances[-kept:].flip(0), vectors[:, -kept:].flip(1).mT
    unit = variances.mean().sqrt()
    layer = nn.Linear(x.shape[1], kept, device=x.device, dtype=features.dtype).requires_grad_(False)
    layer.weight.copy_(vectors / unit)
    layer.bias.copy_(-(vectors @ mean) / unit)
    return layer


def _standardised(targets: Shaped[Tensor, "N ..."]) -> tuple[Tensor, float, Tensor]:
    """Real targets with mean zero and variance one, their unit and their mean; classes as they are."""
    if not targets.is_floating_point():
        return targets, 1.0, torch.zeros(())
    offset = targets.mean(0)
    unit = float((targets - offset).square().mean().sqrt()) or 1.0
    return (targets - offset) / unit, unit, offset


def as_real(targets: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N C"]:
    """Targets for the evidence: themselves, or one centred column per class, scaled as logits."""
    if targets.is_floating_point():
        return targets
    onehot = nn.functional.one_hot(targets, _num_outputs(targets)).double()
    return 4 * (onehot - onehot.mean(0))


def _num_outputs(targets: Shaped[Tensor, "N ..."]) -> int:
    return targets.shape[1] if targets.is_floating_point() else int(targets.max()) + 1


def draw_heads(
    scales: Scales,
    members: int,
    width: int,
    outputs: int,
    *,
    backbone: nn.Module | None = None,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Ensemble:
    """Heads with one hidden layer, drawn from the prior of these scales, on the backbone or on its features."""
    prior, inputs = scales.weight_prior(), len(scales.relevance)
    where = {"device": device} if backbone is None else _kind(backbone)

    def make() -> nn.Module:
        return prior.initialise(mlp(inputs, [width], outputs).to(**where), generator=generator)

    return Ensemble(make, members, backbone=backbone)


def train_heads(
    heads: Ensemble,
    points: Batch,
    method: Method,
    *,
    steps: int,
    rate: float = RATE,
    batch_size: int = 256,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> History:
    """Trains heads on cached features by Adam with a cosine schedule, up to whole epochs; on a GPU as CUDA graphs."""
    own = method.parameters() if isinstance(method, nn.Module) else ()
    optimizer = adam([p for p in (*heads.parameters(), *own) if p.requires_grad], rate)
    size = min(batch_size, len(points))
    on_gpu = points.device.type == "cuda"
    batches = len(points) // size if on_gpu else -(-len(points) // size)
    epochs = -(-steps // batches)
    total = max(1, epochs * batches)
    return fit(
        heads,
        points,
        method,
        Plan(epochs, size, stepping=Captured() if on_gpu else Eager()),
        optimizer=optimizer,
        scheduler=EachStep(LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / total)))),
        generator=generator,
        progress=progress,
    )


@torch.no_grad()
def _rescale(ensemble: Ensemble, method: DEGP, unit: float, offset: Float[Tensor, "C"]) -> None:
    """From standardised targets to the user's, in the read-outs and in the noise variance."""
    assert ensemble.stacked is not None and isinstance(method.likelihood, Gaussian)
    *_, readout = (layer for layer in ensemble.stacked.modules() if isinstance(layer, nn.Linear))
    readout.weight *= unit
    readout.bias.mul_(unit).add_(offset)
    method.likelihood.widen(unit**2)


def _num_components(form: dict[str, Any]) -> int:
    """Inputs of the heads, from the first layer of their description."""
    (_, first), *_ = form["network"]["Sequential"]
    return int(first["Linear"]["in_features"])


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def _layers(backbone: nn.Module | None) -> list[nn.Module]:
    return list(backbone.children()) if backbone is not None else []


def _kind(module: nn.Module) -> dict[str, Any]:
    """Device and dtype of a module."""
    like = next(module.parameters())
    return {"device": like.device, "dtype": like.dtype}
