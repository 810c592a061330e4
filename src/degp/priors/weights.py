"""p(w) = N(0, diag σ₀²): the Gaussian prior over a network's weights: penalty, draws and initial weights."""

import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import is_parametrized

__all__ = ["WeightPrior", "Weights", "as_buffers", "as_weights"]

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class WeightPrior:
    """Variance `weights` / fan_in for weights, `biases` for biases: of linear, convolution, RNN and attention layers.

    Other parameters (BatchNorm's, embeddings) have no prior: they are not penalised and keep their values in draws. Nor
    have weights that a parametrisation computes, such as spectral normalisation; a warning names them.

    Args:
        weights: one number, or one per layer in the order of the network.
        biases: likewise; see `NNGP.bias_variances` for why not a small one. The paper's image networks pass 0.01.

    Example:
        >>> network = WeightPrior(weights=2.0, biases=1.0).initialise(mlp(3, [64], 1))
        >>> round(WeightPrior(weights=2.0).variances(mlp(4, [8], 1))["0.weight"], 2)
        0.5
    """

    weights: float | Sequence[float] = 2.0
    biases: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        for name, values in (("weights", self.weights), ("biases", self.biases)):
            least = min(values) if isinstance(values, Sequence) else values
            if not least > 0:
                raise ValueError(f"the variances of {name} must be positive, but the minimum is {least}")

    def variances(self, module: nn.Module) -> dict[str, float]:
        """σ₀² of each parameter that has a prior, by name."""
        layers = [(name, layer) for name, layer in module.named_modules() if _has_prior(layer)]
        _warn_of_computed(layers)
        weights, biases = (_per_layer(values, len(layers)) for values in (self.weights, self.biases))
        known = dict(module.named_parameters())  # a tied parameter once, under its first name
        variances = {
            f"{prefix}.{name}" if prefix else name: bias if "bias" in name else weight / _fan_in(parameter)
            for (prefix, layer), weight, bias in zip(layers, weights, biases, strict=True)
            for name, parameter in layer.named_parameters(recurse=False)
        }
        return {name: variance for name, variance in variances.items() if name in known}

    def draw(
        self,
        module: nn.Module,
        num_draws: int,
        *,
        names: Container[str] | None = None,
        like: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Weights:
        """S independent sets of weights, each (S, …), from one call of the random generator.

        They get the dtype and device of `like`; without it, of the module's own parameters. With `names`, only these
        parameters are drawn.
        """
        variances = {name: v for name, v in self.variances(module).items() if names is None or name in names}
        shapes = {name: module.get_parameter(name).shape for name in variances}
        sizes = [shape.numel() for shape in shapes.values()]
        like = next(module.parameters(), torch.empty(0)) if like is None else like
        # one long draw: filling many small tensors takes longer than drawing the numbers
        flat = torch.randn(num_draws * sum(sizes), dtype=like.dtype, device=like.device, generator=generator)
        pieces = flat.split([num_draws * size for size in sizes])
        if pieces:
            torch._foreach_mul_(pieces, [variance**0.5 for variance in variances.values()])
        return {
            name: piece.view(num_draws, *shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
        }

    @torch.no_grad()
    def initialise(self, module: nn.Module, *, generator: torch.Generator | None = None) -> nn.Module:
        """Initialises a network with a draw of this prior, in place, and returns it."""
        for name, value in self.draw(module, 1, generator=generator).items():
            module.get_parameter(name).copy_(value[0])
        return module

    def energy(
        self, module: nn.Module, parameters: Mapping[str, Tensor], anchors: Mapping[str, Tensor] = MappingProxyType({})
    ) -> Float[Tensor, ""]:
        """½ Σ (w − a)² / σ₀² over all weights: −log p(w) without its constant.

        Args:
            module: the architecture, which tells weights from biases and has the fan-in of each.
            parameters: values by name, with or without a leading member axis.
            anchors: a by name; zero by default.
        """
        variances = {name: v for name, v in self.variances(module).items() if name in parameters}
        if not variances:
            return next((p.new_zeros(()) for p in parameters.values()), torch.zeros(()))
        distances = [parameters[name] - anchors[name] if anchors else parameters[name] for name in variances]
        return _HalfSquares.apply([1 / (2 * variance) for variance in variances.values()], *distances)


class _HalfSquares(torch.autograd.Function):
    """Σᵢ cᵢ ‖wᵢ‖² with gradient 2cᵢwᵢ, in few operations on all tensors at once: on a GPU their number is the cost."""

    @staticmethod
    def forward(ctx: Any, coefficients: Sequence[float], *tensors: Tensor) -> Float[Tensor, ""]:
        ctx.coefficients = coefficients
        ctx.save_for_backward(*tensors)
        squares = torch._foreach_pow(torch._foreach_norm(tensors), 2)
        return torch.stack(torch._foreach_mul(squares, coefficients)).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, ""]) -> tuple[Tensor | None, ...]:
        twice = [2 * c for c in ctx.coefficients]
        if torch.is_grad_enabled():  # for second derivatives, which the operations on lists do not support
            return None, *(c * gradient * w for c, w in zip(twice, ctx.saved_tensors, strict=True))
        return None, *torch._foreach_mul(torch._foreach_mul(ctx.saved_tensors, twice), gradient)


def _has_prior(layer: nn.Module) -> bool:
    return isinstance(layer, (nn.Linear, nn.Bilinear, nn.RNNBase, nn.MultiheadAttention, _ConvNd))


def _warn_of_computed(layers: Sequence[tuple[str, nn.Module]]) -> None:
    computed = [name or "the network" for name, layer in layers if is_parametrized(layer)]
    if computed:
        warnings.warn(
            f"weights that a parametrisation computes have no prior, here those of {', '.join(computed)}: they are not "
            f"penalised, and the same in all draws",
            stacklevel=4,
        )


def _fan_in(parameter: Tensor) -> int:
    return parameter[0].numel()


def _per_layer(values: float | Sequence[float], num_layers: int) -> Sequence[float]:
    if not isinstance(values, Sequence):
        return [values] * num_layers
    if len(values) != num_layers:
        raise ValueError(
            f"variances must be one number or one per layer, but there are {len(values)} for {num_layers} layers "
            f"(linear, convolution, recurrent and attention ones count)"
        )
    return values


def as_buffers(weights: Weights) -> nn.Module:
    """Weights as buffers of a module, which move and are saved with it."""
    module = nn.Module()
    for name, value in weights.items():
        module.register_buffer(name.replace(".", "/"), value)  # a buffer's name cannot hold a dot
    return module


def as_weights(module: nn.Module) -> Weights:
    """The inverse of `as_buffers`."""
    return {name.replace("/", "."): value for name, value in module.named_buffers()}
