"""Heads on a trained network as a predictor: predictions, a folder, and one graph."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from degp.data.arrays import check_inputs
from degp.ensemble import Ensemble
from degp.ensemble.backbones import InSingle, UpTo, bare, before_layer
from degp.ensemble.layers import sizes_of
from degp.ensemble.unpacking import Unpacked
from degp.graph import export_ensemble
from degp.likelihoods import Categorical, Gaussian
from degp.methods import DEGP, degp
from degp.points import Inputs, as_inputs, map_tensors
from degp.prediction import predict
from degp.predictive import Predictive
from degp.priors.analytic import NNGP
from degp.priors.evidence import Scales
from degp.runtime.files import read_json, write_json

__all__ = ["Attached"]

FACTS = "predictor.json"


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
        """The predictive distribution of new targets, from the network's own inputs; arguments as in `predict`.

        Inputs may be on another device than the network.
        """
        inputs = as_inputs(inputs)
        check_inputs(inputs)
        device = next(self.ensemble.parameters()).device
        points = map_tensors(lambda tensor: tensor.to(device), inputs)
        return predict(
            self.ensemble, points, self.method, num_draws=num_draws, batch_size=batch_size, generator=generator
        )

    def save(self, folder: Path | str) -> None:
        """Saves everything that `load` needs to a new folder, without pickle."""
        self.ensemble.save(folder)
        assert self.ensemble.backbone is not None
        body, *_, last = self.ensemble.backbone.children()
        facts: dict[str, Any] = {"layer": self.layer, "epsilon": self.method.epsilon, "noise_variance": None}
        facts["unit_length"] = isinstance(last, nn.RMSNorm)
        facts |= _wrappers(body)
        likelihood = self.method.likelihood
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
        saved = read_json(Path(folder) / FACTS)
        backbone = None if network is None else _backbone(network, saved, Path(folder))
        noise = saved["noise_variance"]
        likelihood = (
            Categorical(saved["temperature"]) if noise is None else Gaussian(noise, units=tuple(saved["units"]))
        )
        method = degp(likelihood, NNGP(1), epsilon=saved["epsilon"])
        return cls(Ensemble.load(folder, backbone=backbone), method, saved["layer"])


def _wrappers(body: nn.Module) -> dict[str, Any]:
    """How the network is made the body of heads."""
    kinds = {type(part): part for part in body.modules()}
    facts = {"is_end": UpTo not in kinds, "in_single": InSingle in kinds}
    return facts | ({"output": kinds[Unpacked].output} if Unpacked in kinds else {})


def _backbone(network: nn.Module, saved: dict[str, Any], folder: Path) -> nn.Module:
    """The network up to the replaced layer, and a projection of the saved sizes."""
    known, layer = bare(network), saved["layer"]
    if "output" in saved and not isinstance(known, Unpacked):
        known = Unpacked(known, saved["output"])
    if layer not in dict(known.named_modules()):
        raise ValueError(
            f"the network must be the one that members were attached to, with a layer {layer!r}, but this "
            f"{type(network).__name__} has none; pass the same architecture as network=…"
        )
    features, _ = sizes_of(known.get_submodule(layer))
    components = _num_components(read_json(folder / "ensemble.json"))
    norm = [nn.RMSNorm(components)] if saved["unit_length"] else []
    body = before_layer(known, layer, is_end=saved.get("is_end", True))
    body = InSingle(body) if saved.get("in_single") else body
    return nn.Sequential(body, nn.Linear(features, components), *norm)


def _num_components(form: dict[str, Any]) -> int:
    """Inputs of the heads, from the first layer of their description."""
    (_, first), *_ = form["network"]["Sequential"]
    return int(first["Linear"]["in_features"])
