"""Light members on a trained network, in one call: cached features, prior scales by evidence, DE-GP heads."""

import math
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from degp.calibration import calibrate_cautiously
from degp.data.arrays import check_inputs
from degp.data.batches import batches_of
from degp.data.splits import hold_out_rows
from degp.ensemble import Ensemble
from degp.ensemble.backbones import before_layer, callable_with, last_layer
from degp.ensemble.layers import sizes_of
from degp.ensemble.unpacking import Unpacked
from degp.features import cache_features
from degp.graph import export_ensemble
from degp.likelihoods import Categorical, Gaussian
from degp.methods import DEGP, Method, degp
from degp.nets import mlp
from degp.points import Inputs
from degp.prediction import evaluate, predict
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
HELD_OUT = 0.15  # of the points, to fit the temperature
LAST_STEPS, LAST_RATE = 0.2, 0.3  # of the steps and the learning rate, on all points at the end
EVIDENCE_ROWS = 1024  # more change the scales of 128 components little


@dataclass(frozen=True)
class Attached:
    """Heads on a trained network that predict with uncertainty.

    Attributes:
        ensemble: the heads, with the network up to its last layer as a frozen backbone.
        method: DE-GP, as the heads were trained.
        layer: the name of the layer that they replace.
        scales: of the prior over functions of the features.
    """

    ensemble: Ensemble
    method: DEGP
    layer: str
    scales: Scales | None = None

    def predict(
        self,
        inputs: Inputs,
        *,
        num_draws: int = 1000,
        batch_size: int = 512,
        generator: torch.Generator | None = None,
    ) -> Predictive:
        """The predictive distribution of new targets, from the network's own inputs; arguments as in `predict`."""
        return predict(
            self.ensemble, inputs, self.method, num_draws=num_draws, batch_size=batch_size, generator=generator
        )

    def save(self, folder: Path | str) -> None:
        """Saves everything that `load` needs to a new folder, without pickle."""
        self.ensemble.save(folder)
        likelihood = self.method.likelihood
        facts = {"layer": self.layer, "epsilon": self.method.epsilon, "noise_variance": None}
        facts["unit_length"] = isinstance(_last(self.ensemble.backbone), nn.RMSNorm)
        if isinstance(likelihood, Categorical):
            facts["temperature"] = float(likelihood.temperature)
        if isinstance(likelihood, Gaussian):
            facts["noise_variance"] = likelihood.variance.tolist()
            facts["units"] = [likelihood.offset.tolist(), likelihood.unit.tolist()]
        write_json(Path(folder) / FACTS, facts)

    def export(self, inputs: Inputs, path: Path | str, *, generator: torch.Generator | None = None) -> Path:
        """Writes network and heads as one ONNX graph, for any number of points; `inputs` are an example."""
        return export_ensemble(self.ensemble, self.method, inputs, path, generator=generator)

    @classmethod
    def load(cls, folder: Path | str, network: nn.Module | None = None) -> "Attached":
        """What `save` wrote.

        Args:
            network: the one that members were attached to, with any weights; needed unless it is an `nn.Sequential` of
                torch's layers.
        """
        saved, backbone = read_json(Path(folder) / FACTS), None
        layer, noise = saved["layer"], saved["noise_variance"]
        if network is not None:
            known = network if layer in dict(network.named_modules()) else Unpacked(network)
            features, _ = sizes_of(known.get_submodule(layer))
            components = _num_components(read_json(Path(folder) / "ensemble.json"))
            norm = [nn.RMSNorm(components)] if saved["unit_length"] else []
            backbone = nn.Sequential(before_layer(known, layer), nn.Linear(features, components), *norm)
        likelihood = (
            Categorical(saved["temperature"]) if noise is None else Gaussian(noise, units=tuple(saved["units"]))
        )
        method = degp(likelihood, NNGP(1), epsilon=saved["epsilon"])
        return cls(Ensemble.load(folder, backbone=backbone), method, layer)


def attach(
    network: nn.Module,
    data: Any,
    *,
    layer: str | None = None,
    classes: int | None = None,
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
    components (`scaled_components`), with scales that maximise the evidence. For classes, 15 % of the points are held
    out at first, to fit a temperature.

    Args:
        network: trained, on the device where it is to run. It may take its inputs as one argument or as several, and
            return a tensor or a record with `logits`, as models of transformers do.
        data: a DataLoader, a Dataset, a `Batch` or an iterable of batches; whole-number targets are classes.
        layer: the name of the layer to replace; by default the linear one that gives the network's outputs.
        classes: their number, where labels are for another task than the network's own, or the last are missing.
        members: M.
        width: units of each head's hidden layer.
        components: at most so many principal components of the features.
        steps: of Adam at 3e-3 with a cosine schedule, up to whole epochs; too few leave the heads near the prior.
        batch_size: of these steps.
        path: a file to cache the features in.
        generator: for all draws, on the network's device.
        progress: a progress bar; by default where the output is a terminal.
    """
    batches = batches_of(data, device=_device(network))
    first = next(batches, None) or _nothing()
    network = callable_with(network, first.inputs)
    layer = last_layer(network, first.inputs, layer)
    body = before_layer(network, layer)
    features = cache_features(body, chain([first], batches), path=path)
    check_inputs(features.inputs)
    targets, outputs = _checked(features.targets, sizes_of(network.get_submodule(layer))[1], classes)
    units = _units(targets) if targets.is_floating_point() else None
    real = as_real(targets, outputs) if units is None else (targets - units[0]) / units[1]
    projection, scales = scaled_components(replace(features, targets=real), components, generator=generator)
    backbone = nn.Sequential(body, *projection)
    ensemble = draw_heads(scales, members, width, outputs, backbone=backbone, generator=generator)
    method = degp(_likelihood(scales, units), scales.nngp())
    method.to(features.device)  # a CUDA graph cannot hold copies from the CPU
    points = replace(features, inputs=projection(features.inputs).detach(), targets=targets)
    heads = ensemble.on_features()
    options: dict[str, Any] = {"batch_size": batch_size, "generator": generator, "progress": progress}
    if units is None:
        _train_calibrated(heads, points, method, steps, **options)
    else:
        train_heads(heads, points, method, steps=steps, **options)
    ensemble.execution = heads.execution
    return Attached(ensemble.eval(), method.requires_grad_(False), layer, scales)


def _train_calibrated(heads: Ensemble, points: Batch, method: DEGP, steps: int, **options: Any) -> None:
    """Heads for classes: trained without some points, on which the temperature is fitted, then on all of them."""
    seed = int(torch.randint(2**31, (), generator=options["generator"], device=points.device))
    known, held_out = hold_out_rows(points, HELD_OUT, generator=torch.Generator(points.device).manual_seed(seed))
    train_heads(heads, known, method, steps=steps, **options)
    calibrate_cautiously(method, evaluate(heads, held_out.inputs), held_out.targets, held_out.weights)
    train_heads(heads, points, method, steps=math.ceil(LAST_STEPS * steps), rate=LAST_RATE * RATE, **options)


def _nothing() -> Batch:
    raise ValueError("members need data to train on, but there is no batch; is the iterator used up?")


def _checked(
    targets: Shaped[Tensor, "N ..."], outputs: int, classes: int | None
) -> tuple[Shaped[Tensor, "N ..."], int]:
    """Real targets (N, C) or labels (N,), and the number of outputs that heads need for them."""
    if targets.is_floating_point():
        columns = targets[:, None] if targets.ndim == 1 else targets
        Gaussian().check_values(columns, columns.shape[1])
        return columns, columns.shape[1]
    Categorical().check(targets.long() if targets.dtype == torch.bool else targets, outputs)
    highest = int(targets.max())
    count = classes or max(2, outputs)
    if classes is None and highest + 1 != count:
        raise ValueError(
            f"labels must be those of the network's {outputs} outputs, but they reach from {int(targets.min())} to "
            f"{highest}; pass classes=…, the number of classes, or real targets as targets.float()"
        )
    Categorical().check_values(targets, count)
    return targets.long(), count


def scaled_components(
    features: Batch, most: int, *, generator: torch.Generator | None = None
) -> tuple[nn.Sequential, Scales]:
    """Features to their first principal components, scaled for the prior; and the prior's scales, by evidence.

    Three forms compete: components at one common scale, the same with vectors of equal length, and one relevance per
    component. The lowest NLL on held-out rows wins. The evidence cannot choose: on images it prefers 128 relevances,
    and predicts worse with them.

    Args:
        features: with real targets (N, C): standardised ones, or labels `as_real`.
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
        points, groups = self.layers(rows.inputs).detach(), self.groups
        return most_likely_scales(points, rows.targets, 1, weights=rows.weights, groups=groups, most_rows=len(rows))

    def held_out_nll(self, rows: Batch) -> float:
        """−log p(y) of every second row, given the others and the scales that they prefer."""
        known, new = rows[::2], rows[1::2]
        scales = self.fitted(known)
        left, right = (scales.apply(self.layers(part.inputs).detach()) for part in (known, new))
        noise = scales.noise_variance if known.weights is None else scales.noise_variance / known.weights
        process = ExactGP.fit(scales.nngp(), left, known.targets, noise_variance=noise)
        variance = process.variance(right)[:, None] + scales.noise_variance
        return float((variance.log() + (new.targets - process.mean(right)).square() / variance).mean())


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
    if not variances[-1] > 0:
        raise ValueError(
            f"the network's features must differ between points, but those of all {len(x)} are equal; check the data"
        )
    kept = max(1, min(most, int((variances > 1e-12 * variances[-1]).sum())))
    variances, vectors = variances[-kept:].flip(0), vectors[:, -kept:].flip(1).mT
    unit = variances.mean().sqrt()
    layer = nn.Linear(x.shape[1], kept, device=x.device, dtype=features.dtype).requires_grad_(False)
    layer.weight.copy_(vectors / unit)
    layer.bias.copy_(-(vectors @ mean) / unit)
    return layer


def _units(targets: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "C"], Float[Tensor, "C"]]:
    """Mean and standard deviation of each target; those that are constant have the unit one."""
    offset = targets.mean(0)
    spread = (targets - offset).square().mean(0).sqrt()
    return offset, torch.where(spread > 0, spread, 1.0)


def _likelihood(scales: Scales, units: tuple[Float[Tensor, "C"], Float[Tensor, "C"]] | None) -> Categorical | Gaussian:
    if units is None:
        return Categorical()
    offset, unit = (values.tolist() for values in units)
    return Gaussian([scales.noise_variance] * len(unit), learned=True, units=(offset, unit))


def as_real(labels: Int[Tensor, "N"], classes: int) -> Float[Tensor, "N C"]:
    """Labels for the evidence: one centred column per class, scaled as logits."""
    onehot = nn.functional.one_hot(labels, classes).double()
    return 4 * (onehot - onehot.mean(0))


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


def _num_components(form: dict[str, Any]) -> int:
    """Inputs of the heads, from the first layer of their description."""
    (_, first), *_ = form["network"]["Sequential"]
    return int(first["Linear"]["in_features"])


def _device(network: nn.Module) -> torch.device:
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def _last(backbone: nn.Module | None) -> nn.Module | None:
    return None if backbone is None else [*backbone.children()][-1]


def _kind(module: nn.Module) -> dict[str, Any]:
    """Device and dtype of a module."""
    like = next(module.parameters())
    return {"device": like.device, "dtype": like.dtype}
