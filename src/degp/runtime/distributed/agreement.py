"""Ranks must agree on what they train: each describes it as text, and an error names the difference and the ranks."""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from degp.runtime.distributed.group import Group

__all__ = ["RanksDiffer", "described", "require_same"]


class RanksDiffer(ValueError):
    """The ranks of a run were not started alike.

    Example:
        >>> issubclass(RanksDiffer, ValueError)  # as for other wrong settings
        True
    """


def require_same(group: Group, describe: Callable[[], Mapping[str, Any]]) -> None:
    """Raises `RanksDiffer` on all ranks where their descriptions differ, naming the difference and the ranks.

    Args:
        describe: what should be the same, by name; called only where there are several ranks.

    Example:
        >>> from degp.runtime.distributed import current
        >>> require_same(current().world, lambda: {"learning rate": 0.1, "members": 12})
    """
    if group.alone:
        return
    descriptions = group.everyone(dict(described(describe())))
    for name in dict.fromkeys(name for one in descriptions for name in one):
        values = [one.get(name, "missing") for one in descriptions]
        if len(set(values)) > 1:
            raise RanksDiffer(
                f"all ranks must be started alike, but {name} is {_by_rank(values)}; give every rank the same program, "
                f"seed, settings and data"
            )


def described(value: Any, name: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Everything plain inside a value, as pairs of its path and its text; tensors as checksums.

    Modules are described by their settings, parameters and buffers, optimisers and schedulers by their settings,
    functions by name.
    """
    if id(value) in above:
        return
    parts = _parts(value)
    if parts is None:
        yield name, _text(value)
        return
    if not isinstance(value, Mapping | Sequence):
        yield name, type(value).__name__
    for key, part in parts.items():
        yield from described(part, f"{name}.{key}" if name else str(key), (*above, id(value)))


def _parts(value: Any) -> dict[str, Any] | None:
    """The parts of a value by name; None for a value that is described as a whole."""
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return {str(index): part for index, part in enumerate(value)}
    if isinstance(value, nn.Module):
        plain = {key: part for key, part in vars(value).items() if not key.startswith("_")}
        return plain | value._parameters | value._buffers | value._modules
    if isinstance(value, Optimizer):
        return {
            f"group {g}": {key: setting for key, setting in group.items() if key != "params"}
            for g, group in enumerate(value.param_groups)
        }
    if isinstance(value, LRScheduler):
        return dict(value.state_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return None


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        form = f"{tuple(value.shape)} {value.dtype}"
        return form if value.is_meta else f"{form} with checksum {_checksum(value)}"
    if isinstance(value, torch.Generator):
        return f"a generator with checksum {_checksum(value.get_state())}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | PurePath | torch.dtype):
        return str(value)
    if inspect.isroutine(value) or isinstance(value, type):
        return str(getattr(value, "__qualname__", type(value).__name__))
    return type(value).__name__  # its own text may hold its address in memory, which differs between ranks


def _checksum(tensor: Tensor) -> str:
    values = tensor.detach().cpu().contiguous().flatten()
    return hashlib.sha256(values.view(torch.uint8).numpy().data).hexdigest()[:12]


def _by_rank(values: Sequence[str]) -> str:
    """`1 on rank 0 and 2 on ranks 1, 2`."""
    ranks: dict[str, list[str]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(str(rank))
    return " and ".join(
        f"{value} on rank{'s' if len(own) > 1 else ''} {', '.join(own)}" for value, own in ranks.items()
    )
