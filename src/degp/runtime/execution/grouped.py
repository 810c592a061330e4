"""Members as groups of channels: M convolutions as one grouped convolution, from the first layer to the last.

Under vmap every convolution moves the member axis to another place than the next operation needs, and on a GPU moving
activations takes longer than the convolutions. Here activations stay (N, M·C, H, W), channels-last on a GPU; BatchNorm
over M·C channels is M separate ones; and read-outs are one batched product.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Shaped
from torch import Tensor, fx, nn

from degp.points import Inputs
from degp.runtime.execution.fusion import Step, fuse_chains
from degp.runtime.execution.layers import Convolution, Pixelwise
from degp.runtime.execution.strategies import Tensors
from degp.runtime.kernels.layout import channels_last, channels_second

__all__ = ["Grouped", "Layout", "NotGroupable", "Program", "grouped_program"]


class NotGroupable(TypeError):
    """A network has an operation without a grouped form; the message says which.

    Example:
        >>> try:
        ...     grouped_program(nn.Sequential(nn.Embedding(5, 2), nn.Flatten()))
        ... except NotGroupable as reason:
        ...     print(reason)
        there is no grouped form of Embedding
    """


class Layout(Enum):
    """The place of the member axis in an activation."""

    SHARED = "(N, …), the same for all members"
    CHANNELS = "(N, M·C, H, W)"
    FEATURES = "(M, N, F)"


@dataclass(frozen=True)
class Grouped:
    """All members in one pass, as groups of channels; raises `NotGroupable` where an operation has no such form.

    Example:
        >>> ensemble.execution = Grouped()
        >>> ensemble(data.inputs).shape
        torch.Size([3, 24, 1])
    """

    name: str = "grouped"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]:
        return grouped_program(module)(parameters, buffers, inputs)


@dataclass(frozen=True)
class Program:
    """A network's operations in order, each with the names of its arguments and its result."""

    steps: tuple[Step, ...]
    source: str
    result: str

    def __call__(self, parameters: Tensors, buffers: Tensors, inputs: Inputs) -> Tensor:
        state = parameters | buffers
        values = {self.source: channels_last(inputs)}
        for name, operation, arguments in self.steps:
            values[name] = operation(state, *(values[argument] for argument in arguments))
        return values[self.result]


_programs: "WeakKeyDictionary[nn.Module, Program]" = WeakKeyDictionary()


def grouped_program(module: nn.Module) -> Program:
    """The grouped form of a network, made once; raises `NotGroupable` where there is none.

    Example:
        >>> networks = [lenet(), lenet()]
        >>> parameters, buffers = torch.func.stack_module_state(networks)
        >>> grouped_program(networks[0])(parameters, buffers, torch.zeros(5, 1, 28, 28)).shape
        torch.Size([2, 5, 10])
    """
    if module not in _programs:
        _programs[module] = _translate(module)
    return _programs[module]


def _translate(module: nn.Module) -> Program:
    graph = _traced(module)
    layouts: dict[str, Layout] = {}
    steps = []
    source = result = ""
    for node in graph.nodes:
        if node.op == "placeholder":
            source, layouts[node.name] = node.name, Layout.SHARED
        elif node.op == "output":
            result = _only_result(node, layouts)
        else:
            operation, layout, arguments = _operation(node, module, layouts)
            layouts[node.name] = layout
            steps.append((node.name, operation, arguments))
    return Program(fuse_chains(tuple(steps)), source, result)


def _traced(module: nn.Module) -> fx.Graph:
    try:
        graph = fx.Tracer().trace(module)
    except Exception as error:  # a forward may do anything with a value that is no tensor
        raise NotGroupable(f"its forward cannot be traced ({str(error).splitlines()[0]})") from error
    if sum(node.op == "placeholder" for node in graph.nodes) != 1:
        raise NotGroupable("it takes more than one input")
    return graph


def _only_result(node: fx.Node, layouts: Mapping[str, Layout]) -> str:
    (value,) = node.args
    if not isinstance(value, fx.Node) or layouts[value.name] is not Layout.FEATURES:
        raise NotGroupable("its outputs are not (N, C) from a linear layer or an average over pixels")
    return value.name


Rule = tuple[Callable[..., Tensor], Layout]  # an operation on grouped activations, and the layout of its result
LayerRule = Callable[[str, nn.Module, Layout], Rule]
FunctionRule = Callable[[list[Layout], list[Any], dict[str, Any]], Rule]


def _operation(
    node: fx.Node, module: nn.Module, layouts: Mapping[str, Layout]
) -> tuple[Callable[..., Tensor], Layout, tuple[str, ...]]:
    """A node's operation on grouped activations, the layout of its result, and the names of its arguments."""
    taken = tuple(argument for argument in node.args if isinstance(argument, fx.Node))
    if any(isinstance(value, fx.Node) for value in node.kwargs.values()) or not taken:
        raise NotGroupable(f"{node.format_node()} takes activations by name, or none")
    given = [layouts[argument.name] for argument in taken]
    names = tuple(argument.name for argument in taken)
    if node.op == "call_module":
        layer = module.get_submodule(str(node.target))
        rule = LAYERS.get(type(layer))
        if rule is None or len(given) != 1:
            raise NotGroupable(f"there is no grouped form of {type(layer).__name__}")
        return *rule(str(node.target), layer, given[0]), names
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    plain = FUNCTIONS.get(str(name))
    if plain is None or node.op == "get_attr":
        raise NotGroupable(f"there is no grouped form of {name or node.op}")
    rest = list(node.args[len(taken) :])
    if any(isinstance(argument, fx.Node) for argument in rest):
        raise NotGroupable(f"{node.format_node()} mixes activations and numbers")
    return *plain(given, rest, dict(node.kwargs)), names


# Layers, by their module ------------------------------------------------------------------------------------------


def _convolution(name: str, layer: nn.Module, layout: Layout) -> Rule:
    assert isinstance(layer, nn.Conv2d)
    if layer.padding_mode != "zeros":
        raise NotGroupable(f"{name} pads by {layer.padding_mode}")
    _require(name, layout, Layout.SHARED, Layout.CHANNELS)
    if layout is Layout.SHARED and layer.groups != 1:
        raise NotGroupable(f"{name} groups the channels of the inputs")
    return Convolution(name, layer, layout is Layout.SHARED), Layout.CHANNELS


def _batch_norm(name: str, layer: nn.Module, layout: Layout) -> Rule:
    assert isinstance(layer, nn.BatchNorm2d)
    _require(name, layout, Layout.CHANNELS)
    if layer.momentum is None:
        raise NotGroupable(f"{name} averages its statistics over all batches")
    momentum = layer.momentum

    def apply(state: Tensors, x: Tensor) -> Tensor:
        def own(part: str) -> Tensor | None:
            value = state.get(f"{name}.{part}")
            return None if value is None else value.view(-1)

        mean, variance, batches = own("running_mean"), own("running_var"), own("num_batches_tracked")
        training = layer.training or mean is None
        if layer.training and batches is not None:
            batches.add_(1)
        return F.batch_norm(x, mean, variance, own("weight"), own("bias"), training, momentum, layer.eps)

    return apply, layout


def _group_norm(name: str, layer: nn.Module, layout: Layout) -> Rule:
    assert isinstance(layer, nn.GroupNorm)
    _require(name, layout, Layout.CHANNELS)

    def apply(state: Tensors, x: Tensor) -> Tensor:
        members = x.shape[1] // layer.num_channels
        weight, bias = (state[f"{name}.{part}"].flatten() if layer.affine else None for part in ("weight", "bias"))
        return F.group_norm(x, members * layer.num_groups, weight, bias, layer.eps)

    return apply, layout


def _linear(name: str, layer: nn.Module, layout: Layout) -> Rule:
    assert isinstance(layer, nn.Linear)
    _require(name, layout, Layout.SHARED, Layout.FEATURES)
    weight, bias = f"{name}.weight", f"{name}.bias"

    def joint(state: Tensors, x: Tensor) -> Tensor:  # inputs (N, D) that all members share
        own = state[bias].flatten() if layer.bias is not None else None
        return F.linear(x, state[weight].flatten(0, 1), own).unflatten(1, (len(state[weight]), -1)).transpose(0, 1)

    def batched(state: Tensors, x: Tensor) -> Tensor:
        if layer.bias is None:
            return torch.bmm(x, state[weight].mT)
        return torch.baddbmm(state[bias][:, None], x, state[weight].mT)

    return joint if layout is Layout.SHARED else batched, Layout.FEATURES


def _flatten_layer(name: str, layer: nn.Module, layout: Layout) -> Rule:
    assert isinstance(layer, nn.Flatten)
    return _flatten([layout], [layer.start_dim, layer.end_dim], {})


def _dropout(name: str, layer: nn.Module, layout: Layout) -> Rule:
    if layout is Layout.SHARED:
        raise NotGroupable(f"{name} drops inputs, which all members share")
    return Pixelwise(layer), layout


def _pixelwise(name: str, layer: nn.Module, layout: Layout) -> Rule:
    return Pixelwise(layer), layout


def _pooling(name: str, layer: nn.Module, layout: Layout) -> Rule:
    _require(name, layout, Layout.SHARED, Layout.CHANNELS)
    return Pixelwise(layer), layout


POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardtanh, nn.ReLU6)
POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
LAYERS: dict[type[nn.Module], LayerRule] = {
    nn.Conv2d: _convolution,
    nn.BatchNorm2d: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.Linear: _linear,
    nn.Flatten: _flatten_layer,
    nn.Dropout: _dropout,
    nn.Dropout2d: _dropout,
    nn.Identity: _pixelwise,
    **dict.fromkeys(POINTWISE, _pixelwise),
    **dict.fromkeys(POOLING, _pooling),
}


# Functions and methods, by their name -----------------------------------------------------------------------------


def _flatten(given: list[Layout], rest: list[Any], options: dict[str, Any]) -> Rule:
    start = rest[0] if rest else options.get("start_dim", 0)
    end = rest[1] if len(rest) > 1 else options.get("end_dim", -1)
    if (start, end) != (1, -1):
        raise NotGroupable(f"flatten from axis {start} to {end}: only from 1 to -1")
    (layout,) = given
    if layout is Layout.CHANNELS:
        return (lambda state, x: x.unflatten(1, (_member_count(state), -1)).flatten(2).transpose(0, 1)), Layout.FEATURES
    return (lambda state, x: x.flatten(1) if layout is Layout.SHARED else x), layout


def _mean(given: list[Layout], rest: list[Any], options: dict[str, Any]) -> Rule:
    axes = rest[0] if rest else options.get("dim")
    if given != [Layout.CHANNELS] or tuple(axes or ()) not in ((2, 3), (-2, -1)) or options.get("keepdim"):
        raise NotGroupable(f"mean over {axes}: only over the pixels (2, 3)")
    return (lambda state, x: x.mean((2, 3)).unflatten(1, (_member_count(state), -1)).transpose(0, 1)), Layout.FEATURES


def _pad(given: list[Layout], rest: list[Any], options: dict[str, Any]) -> Rule:
    sizes = list(rest[0] if rest else options["pad"])
    zeros = len(rest) < 2 and options.get("mode", "constant") == "constant" and not options.get("value")
    if not zeros or len(sizes) > 6 or given[0] is Layout.FEATURES:
        raise NotGroupable("pad: only with zeros, of pixels and channels")
    if len(sizes) < 6 or given[0] is Layout.SHARED:
        return (lambda state, x: F.pad(x, sizes)), given[0]

    (w0, w1, h0, h1, c0, c1) = sizes

    def apply(state: Tensors, x: Tensor) -> Tensor:  # each member's own channels
        if x.is_contiguous():
            return F.pad(x.unflatten(1, (_member_count(state), -1)), sizes).flatten(1, 2)
        own = x.permute(0, 2, 3, 1).unflatten(3, (_member_count(state), -1))
        return channels_second(F.pad(own, (c0, c1, 0, 0, w0, w1, h0, h1)).flatten(3))

    return apply, given[0]


def _getitem(given: list[Layout], rest: list[Any], options: dict[str, Any]) -> Rule:
    (index,) = rest
    whole = isinstance(index, tuple) and len(index) == 4 and index[:2] == (slice(None), slice(None))
    if given[0] is Layout.FEATURES or not whole:
        raise NotGroupable(f"indexing by {index}: only pixels, as in x[:, :, ::2, ::2]")
    return (lambda state, x: x[index]), given[0]


def _sum(given: list[Layout], rest: list[Any], options: dict[str, Any]) -> Rule:
    if rest or options or len(set(given)) != 1:
        raise NotGroupable("a sum of activations of different form, or with a number")
    return (lambda state, *values: values[0] + values[1]), given[0]


def _named(function: Callable[..., Tensor]) -> FunctionRule:
    def rule(given: list[Layout], rest: list[Any], options: dict[str, Any]) -> Rule:
        if len(given) != 1:
            raise NotGroupable(f"{function.__name__} of several activations")
        return (lambda state, x: function(x, *rest, **options)), given[0]

    return rule


def _pooled(function: Callable[..., Tensor]) -> FunctionRule:
    def rule(given: list[Layout], rest: list[Any], options: dict[str, Any]) -> Rule:
        _require(function.__name__, given[0], Layout.SHARED, Layout.CHANNELS)
        return _named(function)(given, rest, options)

    return rule


FUNCTIONS: dict[str, FunctionRule] = {
    **{name: _named(getattr(F, name)) for name in ("relu", "gelu", "silu", "elu", "softplus", "leaky_relu")},
    **{name: _named(getattr(torch, name)) for name in ("tanh", "sigmoid")},
    **{name: _pooled(getattr(F, name)) for name in ("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d")},
    **dict.fromkeys((operator.add.__name__, operator.iadd.__name__), _sum),
    "flatten": _flatten,
    "mean": _mean,
    "pad": _pad,
    "getitem": _getitem,
}


def _member_count(state: Tensors) -> int:
    return len(next(iter(state.values())))


def _require(name: str, layout: Layout, *allowed: Layout) -> None:
    if layout not in allowed:
        raise NotGroupable(f"{name} gets {layout.value}")
