"""Nested values of tensors, numbers and text as JSON, with the tensors apart; the state of a run is such a tree."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import Tensor

__all__ = ["flatten", "unflatten"]


def flatten(tree: Any, tensors: dict[str, Tensor], place: str = "") -> Any:
    """The tree as JSON values; its tensors are collected in `tensors` and replaced by their names."""
    if isinstance(tree, Tensor):
        name = f"{len(tensors)}{place}"  # numbered: two paths can have the same text
        tensors[name] = tree.detach().contiguous().clone()
        return {"tensor": name}
    if isinstance(tree, dict):
        kind = "counter" if isinstance(tree, Counter) else "dict"
        keys = [flatten(key, tensors, place) for key in tree]
        values = [flatten(value, tensors, f"{place}/{key}") for key, value in tree.items()]
        return {kind: [list(entry) for entry in zip(keys, values, strict=True)]}
    if isinstance(tree, (list, tuple)):
        items = [flatten(value, tensors, f"{place}/{index}") for index, value in enumerate(tree)]
        return {"list" if isinstance(tree, list) else "tuple": items}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(f"a checkpoint holds tensors, numbers and text only, but {place} is a {type(tree).__name__}")


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The way back from `flatten`."""
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind in ("dict", "counter"):
        entries = {unflatten(key, tensors): unflatten(value, tensors) for key, value in content}
        return Counter(entries) if kind == "counter" else entries
    items = [unflatten(value, tensors) for value in content]
    return items if kind == "list" else tuple(items)
