"""Inputs of networks: a tensor, or tuples, lists and dictionaries of tensors, whose first axes count the points."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

__all__ = [
    "Inputs",
    "as_inputs",
    "count_points",
    "device_of",
    "join_points",
    "map_tensors",
    "take_points",
    "tensors_of",
]

Inputs = Any  # a tensor (N, …), or a tree of them: {"tokens": (N, T), "mask": (N, T)}


def as_inputs(inputs: Inputs) -> Inputs:
    """The same inputs, a dictionary-like object such as a tokeniser's `BatchEncoding` as a plain dictionary.

    Example:
        >>> from collections import UserDict
        >>> as_inputs(UserDict(tokens=torch.zeros(1, 2)))
        {'tokens': tensor([[0., 0.]])}
    """
    return dict(inputs) if isinstance(inputs, Mapping) and not isinstance(inputs, dict) else inputs


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """The tensors in inputs; TypeError where there is none, or something else.

    Example:
        >>> len(tensors_of((torch.zeros(4, 7), torch.ones(4))))
        2
    """
    found = tree_leaves(inputs)
    others = [leaf for leaf in found if not isinstance(leaf, Tensor)]
    if others or not found:
        kind = type(others[0]).__name__ if others else f"{type(inputs).__name__} without tensors"
        raise TypeError(
            f"inputs must be tensors, one or several in tuples and dictionaries, but there is a {kind}; "
            f"make tensors of arrays with torch.as_tensor, and a Batch of a whole data set with degp.data.as_batch"
        )
    return found


def count_points(inputs: Inputs) -> int:
    """N, the length of the first axis of each tensor.

    Example:
        >>> count_points({"tokens": torch.zeros(4, 7), "mask": torch.ones(4, 7)})
        4
    """
    sizes = [len(tensor) if tensor.ndim else -1 for tensor in tensors_of(inputs)]
    if min(sizes) < 0 or len({*sizes}) > 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors_of(inputs))
        raise ValueError(f"all tensors of the inputs must have one row per point, but their shapes are {shapes}")
    return sizes[0]


def map_tensors(function: Callable[[Tensor], Any], inputs: Inputs) -> Inputs:
    """A function of each tensor, in the same tuples and dictionaries.

    Example:
        >>> map_tensors(lambda tensor: tensor.shape, {"tokens": torch.zeros(4, 7)})
        {'tokens': torch.Size([4, 7])}
    """
    return tree_map(function, inputs)


def take_points(inputs: Inputs, rows: Tensor | slice) -> Inputs:
    """Some of the points.

    Example:
        >>> take_points((torch.zeros(4, 7), torch.ones(4)), slice(2))[0].shape
        torch.Size([2, 7])
    """
    return map_tensors(lambda tensor: tensor[rows], inputs)


def join_points(parts: Sequence[Inputs]) -> Inputs:
    """The points of several inputs in order.

    Example:
        >>> join_points([torch.zeros(2, 3), torch.ones(4, 3)]).shape
        torch.Size([6, 3])
    """
    if not parts:
        raise ValueError("there must be inputs to join, but there are none; is the iterator used up?")
    return parts[0] if len(parts) == 1 else tree_map(lambda *tensors: torch.cat(tensors), *parts)


def device_of(inputs: Inputs) -> torch.device:
    """Where the tensors are.

    Example:
        >>> device_of({"tokens": torch.zeros(4, 7), "mask": torch.ones(4, 7)})
        device(type='cpu')
    """
    return tensors_of(inputs)[0].device
