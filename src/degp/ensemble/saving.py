"""An ensemble as one folder: weights as safetensors, its form as JSON, nothing pickled."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from degp.ensemble.architectures import build, describe
from degp.ensemble.layers import LowRank, RankOne, materialised, with_layers
from degp.ensemble.stacking import Stacked, named_tensors
from degp.runtime.files import new_folder, read_json, write_json, write_tensors

__all__ = ["FORM", "SavedEnsemble", "read_ensemble", "write_ensemble"]

SCHEMA = 1
TENSORS, FORM = "ensemble.safetensors", "ensemble.json"


@dataclass(frozen=True)
class SavedEnsemble:
    """What a folder holds: the form of the members and of the backbone, and all weights."""

    stacked: Stacked
    backbone: nn.Module | None
    execution: str | None
    tensors: Mapping[str, Tensor]


def write_ensemble(
    folder: Path | str,
    stacked: Stacked,
    backbone: nn.Module | None,
    *,
    execution: str | None,
    tensors: Mapping[str, Tensor],
) -> Path:
    """Writes the folder in one step; it must not exist."""
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(
            f"an ensemble is saved to a new folder, but {folder} exists; choose another, or delete it"
        )
    form = {
        "schema": SCHEMA,
        "members": stacked.members,
        "shared": sorted(stacked.shared),
        "layers": _light_layers(stacked.module),
        "network": describe(materialised(stacked.member(0))),
        "frozen": [name for name, p in stacked.module.named_parameters() if not p.requires_grad],
        "backbone": None if backbone is None else describe(backbone),
        "has_backbone": backbone is not None,
        "is_backbone_frozen": backbone is not None and not any(p.requires_grad for p in backbone.parameters()),
        "execution": execution,
    }
    with new_folder(folder) as draft:
        write_tensors(draft / TENSORS, {name: value.detach().cpu().clone() for name, value in tensors.items()})
        write_json(draft / FORM, form)
    return folder


def read_ensemble(folder: Path | str, network: nn.Module | None, backbone: nn.Module | None) -> SavedEnsemble:
    """The saved ensemble, whose networks are built from their description where they are not given."""
    folder = Path(folder)
    form, tensors = read_json(folder / FORM), load_file(folder / TENSORS)
    if form["schema"] > SCHEMA:
        raise ValueError(f"{folder} has schema {form['schema']} and this version reads up to {SCHEMA}; update degp")
    members = (value for name, value in tensors.items() if name.startswith("stacked."))
    dtype = next((value.dtype for value in members if value.is_floating_point()), torch.float32)
    plain = _network(network, form["network"], folder, "network").to(dtype)
    light = with_layers(plain, lambda name, layer: _light(layer, form["layers"].get(name)))
    own = [name for name, _ in named_tensors(light) if name not in form["shared"]]
    stacked = Stacked.repeated(light, form["members"], own)
    for name, parameter in stacked.module.named_parameters():
        parameter.requires_grad_(name not in form["frozen"])
    if not form["has_backbone"]:
        return SavedEnsemble(stacked, None, form["execution"], tensors)
    shared = _network(backbone, form["backbone"], folder, "backbone")
    for name, tensor in named_tensors(shared):  # heads on a network in half precision are not
        tensor.data = tensor.data.to(tensors.get(f"backbone.{name}", tensor).dtype)
    shared.requires_grad_(not form["is_backbone_frozen"]).eval()
    return SavedEnsemble(stacked, shared, form["execution"], tensors)


def _network(given: nn.Module | None, description: Any, folder: Path, name: str) -> nn.Module:
    if given is not None:
        return copy.deepcopy(given)
    if description is None:
        raise ValueError(
            f"{folder} has the weights of a {name} that is your own code, and not its architecture; pass it: "
            f"Ensemble.load(folder, {name}=…), with any weights"
        )
    with torch.random.fork_rng(devices=[]):
        return build(description)


def _light_layers(module: nn.Module) -> dict[str, int]:
    """The rank of the updates of each light layer by name; 0 for rank-one factors."""
    ranks = {}
    for name, layer in module.named_modules():
        if isinstance(layer, RankOne):
            ranks[name] = 0
        elif isinstance(layer, LowRank):
            ranks[name] = layer.down.out_features
    return ranks


def _light(layer: nn.Module, rank: int | None) -> nn.Module | None:
    if rank is None:
        return None
    return LowRank(layer, rank) if rank else RankOne(layer)  # type: ignore[arg-type]
