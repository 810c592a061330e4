"""The last linear layer of a trained network, found by what the network computes."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from degp.ensemble.backbones import Cut, bare
from degp.ensemble.construction import require_initialised
from degp.ensemble.layers import is_linear, is_pointwise, sizes_of, with_layers
from degp.ensemble.modes import evaluation
from degp.ensemble.stacking import replaced
from degp.ensemble.unpacking import Unpacked, takes_one_argument
from degp.points import Inputs, count_points, take_points, tensors_of
from degp.runtime.execution.strategies import differentiable_attention

__all__ = ["callable_with", "last_layer"]

MOST_NAMES = 8  # of layers in an error


def callable_with(network: nn.Module, inputs: Inputs) -> nn.Module:
    """The network, `Unpacked` where it takes these inputs as separate arguments or returns a record of outputs."""
    require_initialised("the network", network)
    network = bare(network)
    if isinstance(network, Unpacked):
        return network
    _require_entries(network, inputs)
    unpacked = Unpacked(network)
    if not takes_one_argument(network, inputs):
        return unpacked
    try:
        with torch.no_grad(), evaluation(network):
            outputs = network(inputs)
    except Exception as error:  # code of the user's
        kinds = ", ".join(f"{tuple(tensor.shape)} of {tensor.dtype}" for tensor in tensors_of(inputs))
        raise ValueError(
            f"the network must take the inputs of the data, but it fails on the first batch, {kinds}, with: {error}; "
            f"give it inputs as in its training"
        ) from error
    return network if isinstance(outputs, Tensor) else unpacked


def _require_entries(network: nn.Module, inputs: Inputs) -> None:
    """Raises ValueError where some entries of a dictionary are arguments of the network, and others are not."""
    if not isinstance(inputs, Mapping):
        return
    parameters = inspect.signature(network.forward).parameters
    unknown = [str(name) for name in inputs if name not in parameters]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if unknown and len(unknown) < len(inputs) and not takes_any:
        raise ValueError(
            f"the entries of a dictionary are the network's arguments by name, but {type(network).__name__} has none "
            f"called {', '.join(unknown)}; leave that out of the batches"
        )


@torch.no_grad()
@differentiable_attention()  # its fast path does not call linear layers, and passes on tensors without a shape
def last_layer(network: nn.Module, inputs: Inputs, name: str | None = None) -> tuple[Cut, int]:
    """The cut before the linear layer whose outputs are the network's, or alone decide them; and their number.

    A layer that is not the end must be called once, on one row per point, and after all others if it is not named. A
    1 × 1 convolution is a linear layer too; at several places, its features are their mean.

    Args:
        network: as `callable_with` returns it.
        inputs: a batch.
        name: of the layer; then the number is that of its own outputs.
    """
    with evaluation(network):  # in training mode, reading a weight with spectral normalisation changes it
        cut, outputs = _found(network, inputs, name)
    features = cut.backbone(network)(take_points(inputs, slice(2)))
    return replace(cut, in_single=features.dtype in (torch.float16, torch.bfloat16)), outputs


def _found(network: nn.Module, inputs: Inputs, name: str | None) -> tuple[Cut, int]:
    linear = {key: layer for key, layer in network.named_modules() if is_linear(layer) or is_pointwise(layer)}
    is_unpacked = isinstance(network, Unpacked)
    wanted = f"network.{name.removeprefix('network.')}" if is_unpacked and name is not None else name
    known = _listed([key.removeprefix("network.") if is_unpacked else key for key in linear])
    if not linear:
        raise ValueError(
            "members replace a linear layer of the network, but it has none that can be found: torch.nn.Linear, not "
            "scripted, not quantised; on other networks, train degp.Ensemble(make_head, 100, backbone=…)"
        )
    if wanted is not None and wanted not in linear:
        raise ValueError(f"members replace a linear layer of the network, but {name!r} is none; there are: {known}")
    with _calls_of(linear) as calls:
        outputs = network(inputs)
    for key in [key for key in reversed(calls) if wanted in (None, key)]:
        cut = _cut(network, key, is_end=True)
        if _is_end(cut.backbone(network), linear[key], inputs, outputs):
            return cut, sizes_of(linear[key])[1]
    key = next(reversed(calls), "") if wanted is None else wanted
    if key in calls and _is_called_once(linear[key], calls[key], count_points(inputs)):
        if wanted is not None:
            decides = _decides(network, key, inputs, outputs)
            return _cut(network, key), outputs[0].numel() if decides else sizes_of(linear[key])[1]
        if _decides(network, key, inputs, outputs):
            _require_last(network, key, inputs)
            return _cut(network, key), outputs[0].numel()
    if wanted is not None:
        raise ValueError(
            f"the layer that members replace must be called once, on features (N, D), but {name!r} gets "
            f"{_listed(calls.get(wanted, [])) or 'nothing'} of {count_points(inputs)} points; there are: {known}"
        )
    raise ValueError(
        f"the network's outputs must be one row per point, and depend on the inputs through its last linear layer "
        f"alone, but for {count_points(inputs)} points they have the shape {tuple(outputs.shape)}, and no linear layer "
        f"decides them; there are: {known}. Name the one whose inputs are to be the features, as layer=…"
    )


def _cut(network: nn.Module, name: str, *, is_end: bool = False) -> Cut:
    return Cut(name, is_end, output=network.output if isinstance(network, Unpacked) else None)


@contextmanager
def _calls_of(layers: dict[str, nn.Module]) -> Iterator[dict[str, list[tuple[int, ...]]]]:
    """The layers that are called in the block, in the order of their last calls, with the shapes of their inputs."""
    calls: dict[str, list[tuple[int, ...]]] = {}

    def note(name: str, given: Tensor) -> None:
        calls[name] = [*calls.pop(name, []), tuple(given.shape)]

    hooks = [
        layer.register_forward_hook(lambda module, given, outputs, name=name: note(name, given[0]))
        for name, layer in layers.items()
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _is_called_once(layer: nn.Module, shapes: list[tuple[int, ...]], num_points: int) -> bool:
    """Whether the layer's inputs are one row per point, or one image for a convolution."""
    (first, *others), rows = shapes, (num_points, sizes_of(layer)[0])
    return not others and (first == rows or (is_pointwise(layer) and first[:2] == rows))


def _is_end(body: nn.Module, last: nn.Module, inputs: Inputs, outputs: Tensor) -> bool:
    """Whether the network is `last` of the body's features; code between the two may not even take them."""
    if outputs.ndim > 2:
        return False
    outputs = outputs.reshape(-1, 1) if outputs.ndim < 2 else outputs  # a single target may be squeezed
    if sizes_of(last)[1] != outputs.shape[1]:
        return False
    try:
        features = body(inputs)
        values = _on_rows(last, features.to(last.get_parameter("weight")))
    except (RuntimeError, AttributeError, TypeError):
        return False
    return values.shape == outputs.shape and torch.allclose(
        values.to(outputs), outputs, rtol=1e-3, atol=1e-4, equal_nan=True
    )


def _on_rows(layer: nn.Module, features: Tensor) -> Tensor:
    """A linear layer, or a 1 × 1 convolution, of features (N, D)."""
    return F.linear(features, layer.weight.flatten(1), layer.bias) if isinstance(layer, _ConvNd) else layer(features)


class _OfZeros(nn.Module):
    """A layer whose outputs are the same for all points."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(torch.zeros_like(features)).detach()


def _of_zeros(network: nn.Module, name: str) -> nn.Module:
    copied = replaced(network, lambda tensors: tensors[0].detach(), [network]).eval()
    return with_layers(copied, lambda key, layer: _OfZeros(layer) if key == name else None)


def _decides(network: nn.Module, name: str, inputs: Inputs, outputs: Tensor) -> bool:
    """Whether all points have the same outputs where the layer's are: nothing else carries the inputs there."""
    if not 1 <= outputs.ndim <= 2 or len(outputs) != count_points(inputs) or len(outputs) < 2:
        return False
    constant = _of_zeros(network, name)(inputs)
    return torch.allclose(constant, constant[:1].expand_as(constant), rtol=1e-3, atol=1e-4, equal_nan=True)


def _require_last(network: nn.Module, name: str, inputs: Inputs) -> None:
    """Raises ValueError where trained matrices follow the layer: heads would replace these too."""
    constant = _of_zeros(network, name).requires_grad_(True)
    matrices = {key: parameter for key, parameter in constant.named_parameters() if parameter.ndim > 1}
    with torch.enable_grad():
        total = constant(inputs).sum()
    if not matrices or not total.requires_grad:
        return
    slopes = torch.autograd.grad(total, list(matrices.values()), allow_unused=True)
    later = [key for key, slope in zip(matrices, slopes, strict=True) if slope is not None]
    if later:
        raise ValueError(
            f"heads replace the last linear layer and all that follows it, but {name!r} is followed by trained "
            f"weights, {_listed(later)}; pass layer={name!r} to replace these too, or end the network with an nn.Linear"
        )


def _listed(values: Sequence[object]) -> str:
    """The last of them, since the layer wanted is most often there."""
    return ("…, " if len(values) > MOST_NAMES else "") + ", ".join(map(str, values[-MOST_NAMES:]))
