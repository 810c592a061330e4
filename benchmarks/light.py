"""Two hundred members of one network: what is stored, the largest tensor of a pass, and its time."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.timing import in_turns
from degp import Ensemble, lora, rank_one
from degp.nets import mlp

M, B, WIDTH = 200, 64, 512
POINTS = torch.randn(B, WIDTH, generator=torch.Generator().manual_seed(0))


def run() -> list[dict[str, Any]]:
    """MLP 512-512-512-10, 64 points, forward and backward; the largest tensor shows whether a pass copies the base."""
    network = mlp(WIDTH, (WIDTH, WIDTH), 10)
    kinds: dict[str, Ensemble | nn.Module] = {
        "one network": network,
        "independent": Ensemble(lambda: mlp(WIDTH, (WIDTH, WIDTH), 10), M),
        "heads 512-10, frozen backbone": Ensemble(lambda: nn.Linear(WIDTH, 10), M, backbone=_frozen(network)),
        "rank one": rank_one(network, M),
        "LoRA, rank 4": lora(network, M, rank=4),
    }
    passes = {name: partial(_pass, module) for name, module in kinds.items()}
    milliseconds = in_turns(passes, rounds=5, warm_up=1)
    return [
        {
            "members": name,
            "stored, MiB": _stored(module),
            "largest tensor of a pass, MiB": _largest(passes[name]),
            "ms": milliseconds[name],
            "ratio to one network": milliseconds[name] / milliseconds["one network"],
        }
        for name, module in kinds.items()
    ]


def _frozen(network: nn.Sequential) -> nn.Module:
    return copy.deepcopy(network[:-1]).requires_grad_(False)


def _pass(module: nn.Module) -> None:
    module.zero_grad(set_to_none=True)
    module(POINTS).square().sum().backward()


def _stored(module: nn.Module) -> float:
    tensors = [*module.parameters(), *module.buffers()]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()) / 2**20


def _largest(work: Callable[[], None]) -> float:
    with _LargestStorage() as seen:
        work()
    return seen.nbytes / 2**20


class _LargestStorage(TorchDispatchMode):
    """Bytes of the largest storage that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.untyped_storage().nbytes() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.nbytes = max(self.nbytes, *sizes, 0)
        return result
