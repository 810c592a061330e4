"""Networks of standard layers as JSON, so that they can be loaded without code of the user's and without pickle."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from degp.ensemble.stacking import difference

__all__ = ["build", "describe"]

LAYERS: dict[str, Any] = {
    layer.__name__: layer
    for layer in (
        *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, nn.Identity, nn.Flatten, nn.Unflatten),
        *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm),
        *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardswish),
        *(nn.Dropout, nn.Dropout2d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
    )
}


def describe(network: nn.Module) -> Any:
    """A description that `build` understands; None for a network with other layers than those of `LAYERS`."""
    description = _described(network)
    if description is None:
        return None
    with torch.random.fork_rng(devices=[]):
        same = difference([network, _cast(build(description), network)]) in (None, "they have no parameters to stack")
    return description if same else None


def build(description: Any) -> nn.Module:
    """The network that was described, with new weights."""
    ((kind, content),) = description.items()
    if kind == "Sequential":
        network = nn.Sequential()
        for name, part in content:
            network.add_module(name, build(part))
        return network
    if kind not in LAYERS:
        raise ValueError(f"layers must be of a known kind, but there is {kind!r}; update degp, or pass the network")
    return LAYERS[kind](**{name: tuple(v) if isinstance(v, list) else v for name, v in content.items()})


def _described(module: nn.Module) -> Any:
    kind = type(module).__name__
    if type(module) is nn.Sequential:
        parts = {name: _described(child) for name, child in module.named_children()}
        return None if None in parts.values() else {kind: [[name, part] for name, part in parts.items()]}
    if LAYERS.get(kind) is not type(module):
        return None
    names = [name for name in inspect.signature(type(module)).parameters if name not in ("device", "dtype")]
    values = {name: getattr(module, name) for name in names if not name.startswith("_") and hasattr(module, name)}
    if "bias" in values:
        values["bias"] = isinstance(values["bias"], Tensor)
    return {kind: values} if all(_is_plain(value) for value in values.values()) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(part) for part in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _cast(network: nn.Module, like: nn.Module) -> nn.Module:
    """The network with the dtype, the device and the frozen parameters of another."""
    for parameter, other in zip(network.parameters(), like.parameters(), strict=True):
        parameter.data = parameter.data.to(other)
        parameter.requires_grad_(other.requires_grad)
    for buffer, theirs in zip(network.buffers(), like.buffers(), strict=True):
        buffer.data = buffer.data.to(theirs)
    return network
