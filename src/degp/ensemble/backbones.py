"""A trained network taken apart: its last linear layer, and everything before it as a frozen backbone."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble.construction import require_initialised
from degp.ensemble.layers import is_linear, sizes_of, with_layers
from degp.ensemble.modes import evaluation
from degp.ensemble.stacking import replaced
from degp.ensemble.unpacking import Unpacked, takes_one_argument
from degp.points import Inputs, count_points, take_points, tensors_of
from degp.runtime.execution.strategies import differentiable_attention

__all__ = ["InSingle", "LastLayer", "UpTo", "at_least_single", "bare", "before_layer", "callable_with", "last_layer"]

MOST_NAMES = 8  # of layers in an error


@dataclass(frozen=True)
class LastLayer:
    """The linear layer that heads replace, with what follows it.

    Attributes:
        name: in the network's `named_modules`.
        outputs: C, of the network; of the layer, where the network's also depend on something else.
        is_end: whether the network's outputs are the layer's. Else, as with a softmax, what follows is left out.
    """

    name: str
    outputs: int
    is_end: bool


class UpTo(nn.Module):
    """What a layer of a network gets, (N, D), whatever the network makes of its outputs.

    Args:
        network: is changed.
        name: of the layer, which is called once.
    """

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        self.tapped = (_Tap(network.get_submodule(name)),)  # in a tuple: the network has it as a submodule
        self.network = with_layers(network, lambda key, layer: self.tapped[0] if key == name else None)

    def forward(self, inputs: Inputs) -> Float[Tensor, "N D"]:
        taken = self.tapped[0].taken
        try:
            self.network(inputs)
            (features,) = taken
        finally:
            taken.clear()
        return features


class InSingle(nn.Module):
    """A network's features in single precision: in half precision, Adam's squares and small updates are zero."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.training = network.training

    def forward(self, inputs: Inputs) -> Float[Tensor, "N D"]:
        return self.network(inputs).float()


class _Tap(nn.Module):
    """A layer that keeps its inputs until they are taken; a graph cannot be left before its end."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.taken: list[Tensor] = []

    def forward(self, features: Tensor) -> Tensor:
        self.taken.append(features)
        return self.layer(features)


class _OfZeros(nn.Module):
    """A layer whose outputs are the same for all points."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(torch.zeros_like(features))


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


def bare(network: nn.Module) -> nn.Module:
    """The network inside the wrappers of torch.compile and DataParallel, whose layers have the network's own names."""
    network = getattr(network, "_orig_mod", network)
    if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return bare(network.module)
    return network


@torch.no_grad()
@differentiable_attention()  # the fast path does not call its linear layers, and passes on nested tensors without a shape
def last_layer(network: nn.Module, inputs: Inputs, name: str | None = None) -> LastLayer:
    """The linear layer whose outputs are the network's, or alone decide them; or a named one with features (N, D).

    A layer that is not the end must be called once, on one row per point, and after all others if it is not named.
    """
    linear = {key: layer for key, layer in network.named_modules() if is_linear(layer)}
    wanted = name if name is None or not isinstance(network, Unpacked) else f"network.{name.removeprefix('network.')}"
    known = _listed([key.removeprefix("network.") if isinstance(network, Unpacked) else key for key in linear])
    if not linear:
        raise ValueError(
            "members replace a linear layer of the network, but it has none that can be found: torch.nn.Linear, not "
            "scripted, not quantised; on other networks, train degp.Ensemble(make_head, 100, backbone=…)"
        )
    if wanted is not None and wanted not in linear:
        raise ValueError(f"members replace a linear layer of the network, but {name!r} is none; there are: {known}")
    with evaluation(network), _calls_of(linear) as calls:
        outputs = network(inputs)
    for key in [key for key in reversed(calls) if wanted in (None, key)]:
        if _is_end(before_layer(network, key), linear[key], inputs, outputs):
            return LastLayer(key, sizes_of(linear[key])[1], True)
    key = next(reversed(calls), "") if wanted is None else wanted
    if calls.get(key) == [(count_points(inputs), sizes_of(linear[key])[0])]:
        if _decides(network, key, inputs, outputs):
            return LastLayer(key, outputs[0].numel(), False)
        if wanted is not None:
            return LastLayer(key, sizes_of(linear[key])[1], False)
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


def before_layer(network: nn.Module, name: str, *, is_end: bool = True) -> nn.Module:
    """The network without the named layer: frozen, in evaluation mode, with the network's own weights."""
    body = replaced(network, lambda tensors: tensors[0].detach(), [network]).requires_grad_(False).eval()
    if not is_end:
        return UpTo(body, name).eval()
    return with_layers(body, lambda key, layer: nn.Identity() if key == name else None)


@torch.no_grad()
def at_least_single(body: nn.Module, inputs: Inputs) -> nn.Module:
    """The body, whose features become float32 where they are in half precision."""
    return InSingle(body) if body(take_points(inputs, slice(2))).dtype in (torch.float16, torch.bfloat16) else body


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


def _is_end(body: nn.Module, last: nn.Module, inputs: Inputs, outputs: Tensor) -> bool:
    """Whether the network is `last` of the body's features; code between the two may not even take them."""
    if outputs.ndim > 2:
        return False
    outputs = outputs.reshape(-1, 1) if outputs.ndim < 2 else outputs  # a single target may be squeezed
    if sizes_of(last)[1] != outputs.shape[1]:
        return False
    try:
        features = body(inputs)
        values = last(features)
    except (RuntimeError, AttributeError, TypeError):
        return False
    return values.shape == outputs.shape and torch.allclose(
        values.to(outputs), outputs, rtol=1e-3, atol=1e-4, equal_nan=True
    )


def _decides(network: nn.Module, name: str, inputs: Inputs, outputs: Tensor) -> bool:
    """Whether all points have the same outputs where the layer's are: nothing else carries the inputs there."""
    if not 1 <= outputs.ndim <= 2 or len(outputs) != count_points(inputs) or len(outputs) < 2:
        return False
    copied = replaced(network, lambda tensors: tensors[0].detach(), [network]).eval()
    constant = with_layers(copied, lambda key, layer: _OfZeros(layer) if key == name else None)(inputs)
    return torch.allclose(constant, constant[:1].expand_as(constant), rtol=1e-3, atol=1e-4, equal_nan=True)


def _listed(values: Sequence[object]) -> str:
    """The last of them, since the layer wanted is most often there."""
    return ("…, " if len(values) > MOST_NAMES else "") + ", ".join(map(str, values[-MOST_NAMES:]))
