"""Heads on a trained network as a predictor: predictions, a folder, and one graph."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from degp.data.arrays import check_inputs
from degp.ensemble import Ensemble
from degp.ensemble.backbones import Cut
from degp.ensemble.layers import sizes_of
from degp.ensemble.saving import FORM
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
        cut: how the network becomes the first part of this backbone.
        scales: of the prior over functions of the features.
    """

    ensemble: Ensemble
    method: DEGP
    cut: Cut
    scales: Scales | None = None

    @property
    def layer(self) -> str:
        """The name of the layer that heads replace."""
        return self.cut.layer

    def predict(
        self,
        inputs: Inputs,
        *,
        num_draws: int = 1000,
        batch_size: int = 512,
        generator: torch.Generator | None = None,
        progress: bool | None = None,
    ) -> Predictive:
        """The predictive distribution of new targets, from the network's own inputs; arguments as in `predict`.

        Inputs may be on another device than the network. In `torch.autocast` too, everything has the precision of its
        weights.
        """
        inputs = as_inputs(inputs)
        check_inputs(inputs)
        device = next(self.ensemble.parameters()).device
        points = map_tensors(lambda tensor: tensor.to(device), inputs)
        with torch.autocast(device.type, enabled=False):  # rounding that differs between members looks like uncertainty
            return predict(
                self.ensemble,
                points,
                self.method,
                num_draws=num_draws,
                batch_size=batch_size,
                generator=generator,
                progress=progress,
            )

    def save(self, folder: Path | str) -> None:
        """Saves everything that `load` needs to a new folder, without pickle."""
        self.ensemble.save(folder)
        assert self.ensemble.backbone is not None
        *_, last = self.ensemble.backbone.children()
        facts: dict[str, Any] = {"epsilon": self.method.epsilon, "noise_variance": None}
        facts |= asdict(self.cut) | {"unit_length": isinstance(last, nn.RMSNorm)}
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
        cut = Cut(**{field.name: saved[field.name] for field in fields(Cut) if field.name in saved})
        if network is None and read_json(Path(folder) / FORM)["backbone"] is None:
            raise ValueError(
                f"{folder} has the weights of a network that is your own code, and not its architecture; pass it: "
                f"Attached.load(folder, network), with any weights"
            )
        backbone = None if network is None else _backbone(network, cut, saved["unit_length"], Path(folder))
        noise = saved["noise_variance"]
        likelihood = (
            Categorical(saved["temperature"]) if noise is None else Gaussian(noise, units=tuple(saved["units"]))
        )
        method = degp(likelihood, NNGP(1), epsilon=saved["epsilon"])
        return cls(Ensemble.load(folder, backbone=backbone), method, cut)


def _backbone(network: nn.Module, cut: Cut, unit_length: bool, folder: Path) -> nn.Module:
    """The network up to the replaced layer, and a projection of the saved sizes."""
    body = cut.backbone(network)
    features, _ = sizes_of(cut.called(network).get_submodule(cut.layer))
    components = _num_components(read_json(folder / FORM))
    norm = [nn.RMSNorm(components)] if unit_length else []
    return nn.Sequential(body, nn.Linear(features, components), *norm)


def _num_components(form: dict[str, Any]) -> int:
    """Inputs of the heads, from the first layer of their description."""
    (_, first), *_ = form["network"]["Sequential"]
    return int(first["Linear"]["in_features"])
