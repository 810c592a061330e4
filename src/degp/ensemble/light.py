"""Ensembles of light members: one network stored once, and per member the few numbers by which it differs."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from degp.ensemble.backbones import bare
from degp.ensemble.construction import require_initialised
from degp.ensemble.layers import LightLayer, LowRank, RankOne, is_linear, is_product, with_layers
from degp.ensemble.members import Ensemble
from degp.ensemble.stacking import Stacked, replaced

__all__ = ["lora", "rank_one"]

Patterns = str | Sequence[str]


def rank_one(
    network: nn.Module, members: int, *, spread: float = 0.5, generator: torch.Generator | None = None
) -> Ensemble:
    """M members that share the matrices of a network and differ by one factor per input and output of each layer.

    Layer by layer, member m is ((x ∘ rₘ) W) ∘ sₘ + bₘ (BatchEnsemble). Linear layers and convolutions have factors,
    transposed convolutions have none. All vectors (biases, scales of normalisation layers) and BatchNorm's statistics
    are each member's own; matrices, kernels and embeddings exist once. What is frozen in the network stays frozen and
    shared: where everything is, only the factors train, and the network always runs in evaluation mode.

    Args:
        network: copied; trained or not.
        members: M.
        spread: the factors start as N(1, spread²).
        generator: for the factors.

    Example:
        >>> ensemble = rank_one(nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2)), 50)
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([50, 7, 2])
    """
    frozen = not any(parameter.requires_grad for parameter in network.parameters())
    base = _copied(network, members, lambda tensor: tensor.detach().clone())
    light = with_layers(base, lambda name, layer: RankOne(layer) if is_product(layer) else None)
    if not any(isinstance(layer, RankOne) for layer in light.modules()):
        raise ValueError(
            "light members differ in linear layers and convolutions, but the network has none, or transposed ones "
            "only, which have no factors, and members would be equal; train degp.Ensemble(make, M)"
        )
    own = [name for name, p in light.named_parameters() if p.requires_grad and p.ndim <= 1]
    statistics = [] if frozen else _statistics(light)
    return _ensemble(light, members, own + statistics, spread, generator)


def lora(
    network: nn.Module,
    members: int,
    *,
    rank: int = 4,
    layers: Patterns = "*",
    own: Patterns = (),
    spread: float = 0.1,
    generator: torch.Generator | None = None,
) -> Ensemble:
    """M members that share a frozen network and differ by updates of low rank, W + Uₘ Vₘ, to chosen linear layers.

    The network is stored once, without a copy, and never changed: it runs in evaluation mode, up to the first chosen
    layer once for all members.

    Args:
        network: trained, on any device; its `requires_grad` and mode stay as they are.
        members: M.
        rank: of the updates.
        layers: names of the layers to update, as patterns: `"*attention*"`, `["*.query", "*.value"]`; by default all
            linear ones.
        own: names of modules that each member has a copy of and trains whole, such as a new `"head"`.
        spread: size of the updates at the start, relative to the layers' weights.
        generator: for the updates.

    Example:
        >>> ensemble = lora(nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2)), 50, rank=2, layers="0")
        >>> sum(p.numel() for p in ensemble.parameters() if p.requires_grad)
        6700
    """
    if rank < 1:
        raise ValueError(f"the rank of an update must be at least 1, but it is {rank}")
    base = _copied(network, members, lambda tensor: tensor.detach()).requires_grad_(False).eval()
    whole = [name for name, _ in base.named_modules() if name and _matches(name, own)]
    updated = {
        name
        for name, layer in base.named_modules()
        if is_linear(layer) and _matches(name, layers) and not any(_is_within(name, other) for other in whole)
    }
    if not updated and not whole:
        known = ", ".join(name for name, layer in base.named_modules() if is_linear(layer))
        raise ValueError(f"layers must match a linear layer, but {layers!r} matches none of {known or 'none at all'}")
    light = with_layers(base, lambda name, layer: LowRank(layer, rank) if name in updated else None)
    differing = [name for name, p in light.named_parameters() if p.requires_grad or _is_within(name, *whole)]
    for name in differing:
        light.get_parameter(name).requires_grad_(True)
    return _ensemble(light, members, differing, spread, generator)


def _copied(network: nn.Module, members: int, new: Callable[[Tensor], Tensor]) -> nn.Module:
    if members < 1:
        raise ValueError(f"an ensemble needs at least one member, but members is {members}")
    network = bare(network)
    require_initialised("the network", network)
    computed = [name for name, layer in network.named_modules() if is_product(layer) and is_parametrized(layer)]
    if computed:
        raise ValueError(
            f"light members need layers with plain weights, but those of {', '.join(computed)} are computed by a "
            f"parametrisation; call torch.nn.utils.parametrize.remove_parametrizations on a copy first"
        )
    return replaced(network, lambda tensors: new(tensors[0]), [network])


def _ensemble(
    light: nn.Module, members: int, own: Sequence[str], spread: float, generator: torch.Generator | None
) -> Ensemble:
    if not any(isinstance(layer, LightLayer) for layer in light.modules()) and not own:
        raise ValueError("light members differ in linear layers and convolutions, but the network has none")
    stacked = Stacked.repeated(light, members, own)
    for layer in stacked.module.modules():
        if isinstance(layer, LightLayer):
            layer.initialise(spread, generator)
    return Ensemble(stacked)


def _statistics(module: nn.Module) -> list[str]:
    """Buffers that members may change: those of modules with real-valued ones. Tables of indices stay shared."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if any(buffer.is_floating_point() for buffer in part.buffers(recurse=False))
        for name, _ in part.named_buffers(recurse=False)
    ]


def _matches(name: str, patterns: Patterns) -> bool:
    chosen = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatchcase(name, pattern) for pattern in chosen)


def _is_within(name: str, *modules: str) -> bool:
    return any(f"{name}.".startswith(f"{module}.") for module in modules)
