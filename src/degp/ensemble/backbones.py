"""A trained network taken apart: its last linear layer, and everything before it as a frozen backbone."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from degp.ensemble.construction import require_initialised
from degp.ensemble.layers import is_linear, sizes_of, with_layers
from degp.ensemble.modes import evaluation
from degp.ensemble.stacking import replaced
from degp.ensemble.unpacking import Unpacked, takes_one_argument
from degp.points import Inputs, tensors_of

__all__ = ["bare", "before_layer", "callable_with", "last_layer"]


def callable_with(network: nn.Module, inputs: Inputs) -> nn.Module:
    """The network, `Unpacked` where it takes these inputs as separate arguments or returns a record of outputs."""
    require_initialised("the network", network)
    network = bare(network)
    if isinstance(network, Unpacked):
        return network
    unpacked = Unpacked(network)
    if not takes_one_argument(network, inputs):
        return unpacked
    try:
        with torch.no_grad(), evaluation(network):
            outputs = network(inputs)
    except RuntimeError as error:
        kinds = ", ".join(f"{tuple(tensor.shape)} of {tensor.dtype}" for tensor in tensors_of(inputs))
        raise ValueError(
            f"the network must take the inputs of the data, but it fails on the first batch, {kinds}, with: {error}; "
            f"give it inputs as in its training"
        ) from error
    return network if isinstance(outputs, Tensor) else unpacked


def bare(network: nn.Module) -> nn.Module:
    """The network inside the wrappers of torch.compile and DataParallel, whose layers have the network's own names."""
    network = getattr(network, "_orig_mod", network)
    if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return bare(network.module)
    return network


@torch.no_grad()
def last_layer(network: nn.Module, inputs: Inputs, name: str | None = None) -> str:
    """The name of the linear layer whose outputs (N, C) are the network's; of a named one, that they are."""
    linear = {key: layer for key, layer in network.named_modules() if is_linear(layer)}
    wanted = name if name is None or not isinstance(network, Unpacked) else f"network.{name.removeprefix('network.')}"
    known = ", ".join(key.removeprefix("network.") if isinstance(network, Unpacked) else key for key in linear)
    if not linear or (wanted is not None and wanted not in linear):
        raise ValueError(
            f"members replace a linear layer of the network, but {name!r} is none; there are: {known or 'none'}"
        )
    with evaluation(network), _calls_of(linear) as called:
        outputs = network(inputs)
    for key in (key for key in reversed(called) if wanted in (None, key)):
        if _same_from_features(before_layer(network, key), linear[key], inputs, outputs):
            return key
    raise ValueError(
        f"the layer that members replace must map features (N, D) to the network's outputs (N, C), but "
        f"{'no linear layer' if name is None else repr(name)} does; there are: {known}. Pass a network that ends with "
        f"a linear layer, without a softmax, or one of these by name as layer=…"
    )


def before_layer(network: nn.Module, name: str) -> nn.Module:
    """The network with the named layer left out: frozen, in evaluation mode, with the network's own weights."""
    body = replaced(network, lambda tensors: tensors[0].detach(), [network]).requires_grad_(False).eval()
    return with_layers(body, lambda key, layer: nn.Identity() if key == name else None)


@contextmanager
def _calls_of(layers: dict[str, nn.Module]) -> Iterator[dict[str, None]]:
    """The layers that are called in the block, in the order of their last calls."""
    called: dict[str, None] = {}

    def note(name: str) -> None:
        called.pop(name, None)
        called[name] = None

    hooks = [
        layer.register_forward_hook(lambda module, given, outputs, name=name: note(name))
        for name, layer in layers.items()
    ]
    try:
        yield called
    finally:
        for hook in hooks:
            hook.remove()


def _same_from_features(body: nn.Module, last: nn.Module, inputs: Inputs, outputs: object) -> bool:
    """Whether the network is `last` of the body's features; code between the two may not even take them."""
    if not isinstance(outputs, Tensor) or outputs.ndim > 2:
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
