"""Light layers: a layer that all members share, and the few numbers by which each member's differs from it."""

import copy
from collections.abc import Callable
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils import skip_init

__all__ = [
    "LightLayer",
    "LowRank",
    "RankOne",
    "is_linear",
    "is_pointwise",
    "is_product",
    "materialised",
    "sizes_of",
    "with_layers",
]


class LightLayer(nn.Module):
    """A layer in the place of `base`, whose other attributes it shows as its own.

    `weight` is the member's dense one, for networks that take a layer's weight instead of calling the layer, as
    `nn.MultiheadAttention` does with its output projection.
    """

    base: Any  # a module

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.train(base.training)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base":
                raise
            return getattr(self.base, name)

    @property
    def weight(self) -> Float[Tensor, "..."]:
        """The dense weight of the layer that this one equals."""
        raise NotImplementedError

    def initialise(self, spread: float, generator: torch.Generator | None) -> None:
        """Draws the members' differences, in place; `spread` is their size relative to the base's weights."""
        raise NotImplementedError

    def plain(self) -> nn.Module:
        """A layer of the base's kind, with this one's weight."""
        layer = copy.deepcopy(self.base)
        layer.weight = nn.Parameter(self.weight.detach().clone())
        return layer


class RankOne(LightLayer):
    """((x ∘ r) W) ∘ s + b: a linear layer or convolution with one factor per input and per output.

    BatchEnsemble (Wen, Tran and Ba, 2020). Its weight is W ∘ s rᵀ.
    """

    def __init__(self, base: nn.Linear | _ConvNd) -> None:
        super().__init__(base)
        inputs, outputs = sizes_of(base)
        new = base.weight.new_ones
        self.input_factor, self.output_factor = nn.Parameter(new(inputs)), nn.Parameter(new(outputs))

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        base, per_channel = self.base, self._per_channel
        if isinstance(base, nn.Linear):
            product = F.linear(x * self.input_factor, base.weight)
        else:
            product = base._conv_forward(x * per_channel(self.input_factor), base.weight, None)
        scaled = product * per_channel(self.output_factor)
        return scaled if base.bias is None else scaled + per_channel(base.bias)

    @property
    def weight(self) -> Float[Tensor, "..."]:
        shape = [1] * (self.base.weight.ndim - 2)
        groups = getattr(self.base, "groups", 1)
        rows = self.output_factor.view(-1, 1, *shape)
        columns = (
            self.input_factor.view(groups, -1).repeat_interleave(len(rows) // groups, 0).view(len(rows), -1, *shape)
        )
        return rows * self.base.weight * columns

    @torch.no_grad()
    def initialise(self, spread: float, generator: torch.Generator | None) -> None:
        for factor in (self.input_factor, self.output_factor):
            factor.normal_(1.0, spread, generator=generator)

    def _per_channel(self, values: Float[Tensor, "K"]) -> Float[Tensor, "K ..."]:
        return values.view(-1, *[1] * (self.base.weight.ndim - 2))


class LowRank(LightLayer):
    """W x + b + U V x: a linear layer with an update of low rank.

    LoRA (Hu et al., 2022). Unlike there U does not start at zero, where all members would be equal and their covariance
    singular.
    """

    def __init__(self, base: nn.Module, rank: int) -> None:
        super().__init__(base)
        inputs, outputs = sizes_of(base)
        like = {"bias": False, "device": self.base.weight.device, "dtype": self.base.weight.dtype}
        self.down = skip_init(nn.Linear, inputs, rank, **like)
        self.up = skip_init(nn.Linear, rank, outputs, **like)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... K"]:
        return self.base(x) + self.up(self.down(x))

    @property
    def weight(self) -> Float[Tensor, "..."]:
        update = self.up.weight @ self.down.weight
        return self.base.weight + (update if isinstance(self.base, nn.Linear) else update.mT)

    @torch.no_grad()
    def initialise(self, spread: float, generator: torch.Generator | None) -> None:
        """V ~ N(0, 1/D) and U such that the entries of UV have the standard deviation of W's times `spread`."""
        *_, rank, inputs = self.down.weight.shape
        size = spread * float(self.base.weight.square().mean()) ** 0.5
        self.down.weight.normal_(0.0, inputs**-0.5, generator=generator)
        self.up.weight.normal_(0.0, size * (inputs / rank) ** 0.5, generator=generator)


def is_linear(layer: nn.Module) -> bool:
    """Whether a layer is a matrix product: `nn.Linear`, or `Conv1D` of transformers, which has W transposed."""
    return isinstance(layer, nn.Linear) or (type(layer).__name__ == "Conv1D" and hasattr(layer, "nf"))


def is_product(layer: nn.Module) -> TypeGuard[nn.Linear | _ConvNd]:
    """Whether a layer is an `nn.Linear` or a convolution."""
    return isinstance(layer, (nn.Linear, _ConvNd)) and not isinstance(layer, _ConvTransposeNd)


def is_pointwise(layer: nn.Module) -> bool:
    """Whether a layer is a convolution that is a matrix product at each place."""
    if not isinstance(layer, _ConvNd) or isinstance(layer, _ConvTransposeNd):
        return False
    padding = layer.padding if isinstance(layer.padding, tuple) else ()  # by name, none is needed
    return {*layer.kernel_size, *layer.stride, layer.groups} == {1} and not any(padding)


def with_layers(network: nn.Module, new: Callable[[str, nn.Module], nn.Module | None]) -> nn.Module:
    """The same network with other layers, in place: `new` of a layer and its name, where that is not None."""
    found = {id(layer): other for name, layer in network.named_modules() if (other := new(name, layer)) is not None}
    for module in list(network.modules()):
        for name, child in module._modules.items():
            if child is not None and id(child) in found:
                module._modules[name] = found[id(child)]
    return found.get(id(network), network)


def materialised(network: nn.Module) -> nn.Module:
    """The same network, in place, with plain layers in place of light ones."""
    return with_layers(network, lambda name, layer: layer.plain() if isinstance(layer, LightLayer) else None)


def sizes_of(layer: nn.Module) -> tuple[int, int]:
    """How many inputs and outputs a layer has; channels, for a convolution."""
    if isinstance(layer, _ConvNd):
        return layer.in_channels, layer.out_channels
    assert isinstance(layer.weight, Tensor)
    rows, columns = layer.weight.shape
    return (columns, rows) if isinstance(layer, nn.Linear) else (rows, columns)
