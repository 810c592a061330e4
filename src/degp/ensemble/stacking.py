"""Stacking: whether networks share one architecture, and M of them as one module with a leading member axis."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any
from weakref import ReferenceType

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Stacked", "difference", "named_tensors", "replaced"]


@dataclass(frozen=True)
class Stacked:
    """M networks of one architecture as one module: its tensors have a leading member axis, except those shared by all.

    Attributes:
        module: the networks.
        members: M.
        shared: names of the parameters and buffers that exist once.
    """

    module: nn.Module
    members: int
    shared: frozenset[str] = frozenset()

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> "Stacked":
        """Networks with nothing in common but their architecture."""
        stacked = replaced(modules[0], lambda tensors: torch.stack([t.detach() for t in tensors]), modules)
        return cls(stacked, len(modules))

    @classmethod
    def repeated(cls, network: nn.Module, members: int, own: Iterable[str]) -> "Stacked":
        """M times one network; each member has its own copy of the named tensors, and the others exist once."""
        tensors = dict(named_tensors(network))
        ids = {id(tensors[name]) for name in own}
        shared = frozenset(name for name, tensor in tensors.items() if id(tensor) not in ids)

        def copies(tensors: list[Tensor]) -> Tensor:
            tensor = tensors[0].detach()
            return tensor.expand(members, *tensor.shape).clone() if id(tensors[0]) in ids else tensor

        return cls(replaced(network, copies, [network]), members, shared)

    def mapped(self, own: Callable[[Tensor], Tensor], members: int) -> "Stacked":
        """A copy with a function of each member-wise tensor in its place."""
        return Stacked(self._replaced(own, lambda tensor: tensor.detach().clone()), members, self.shared)

    def rows(self, index: Sequence[int]) -> "Stacked":
        """A copy of some members."""
        return self.mapped(lambda tensor: tensor[list(index)].detach(), len(index))

    def member(self, index: int) -> nn.Module:
        """A copy of one member, as a module without a member axis."""
        return self._replaced(lambda tensor: tensor[index].detach().clone(), lambda tensor: tensor.detach().clone())

    def architecture(self) -> nn.Module:
        """One member without values."""
        return self._replaced(lambda tensor: _shape_only(tensor[0]), _shape_only)

    def _replaced(self, own: Callable[[Tensor], Tensor], shared: Callable[[Tensor], Tensor]) -> nn.Module:
        ids = {id(tensor) for name, tensor in named_tensors(self.module) if name in self.shared}
        return replaced(self.module, lambda t: shared(t[0]) if id(t[0]) in ids else own(t[0]), [self.module])


def difference(modules: Sequence[nn.Module]) -> str | None:
    """The reason why members cannot be stacked; None where they share one architecture."""
    first, forms = modules[0], _forms(modules[0])
    if not forms:
        return "they have no parameters to stack"
    for index, module in enumerate(modules[1:], start=1):
        if str(first) != str(module):
            return f"member {index} is built differently from member 0"
        others = _forms(module)
        if forms != others:
            name = min(name for name, _ in forms.items() ^ others.items())
            return f"member {index} has {name} as {others.get(name)} and member 0 as {forms.get(name)}"
        alike = _counterparts(first, module)
        for (name, one), (_, other) in zip(first.named_modules(), module.named_modules(), strict=True):
            if not _same(_settings(one), _settings(other), alike):
                return f"member {index} has other settings than member 0 in {name or 'its outermost module'}"
    return None


def _forms(module: nn.Module) -> dict[str, str]:
    return {
        name: f"{tuple(tensor.shape)} {tensor.dtype}{' trained' if tensor.requires_grad else ''}"
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def _settings(module: nn.Module) -> dict[str, Any]:
    """A module's plain attributes, which stacked members share: numbers, names, functions, hooks."""
    others = ("training", "_parameters", "_buffers", "_modules", "_is_torch_compile")  # the last: is in a wrapper
    return {  # hooks without their keys, which are serial numbers
        name: list(value.values()) if "hook" in name and isinstance(value, Mapping) else value
        for name, value in vars(module).items()
        if name not in others
    }


def _counterparts(first: nn.Module, second: nn.Module) -> set[tuple[int, int]]:
    """Submodules and tensors of two members in the same place: each member keeps its own."""
    listings = (nn.Module.named_modules, nn.Module.named_parameters, nn.Module.named_buffers)
    return {
        (id(one), id(other))
        for listing in listings
        for (_, one), (_, other) in zip(listing(first), listing(second), strict=True)
    }


def _same(one: Any, other: Any, alike: set[tuple[int, int]]) -> bool:
    """Whether two attributes have the same effect, also where `==` cannot decide; if unknown, they differ."""
    if one is other or (id(one), id(other)) in alike:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return (one.dtype, one.device) == (other.dtype, other.device) and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key], alike) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b, alike) for a, b in zip(one, other, strict=True))
    parts = _inside(one), _inside(other)
    if parts[0] is not None:
        return _same(*parts, alike | {(id(one), id(other))})  # an object may refer back to itself
    try:
        return bool(one == other)
    except Exception:  # a comparison that fails decides nothing
        return False


def _inside(value: Any) -> list[Any] | None:
    """The parts of a function or a plain object; None for a value that is compared as a whole."""
    if isinstance(value, FunctionType):
        captured = [cell.cell_contents for cell in value.__closure__ or ()]
        return [value.__code__, value.__defaults__, value.__kwdefaults__, captured]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, ReferenceType):
        return [value()]
    if hasattr(value, "__dict__") and type(value).__eq__ is object.__eq__ and not isinstance(value, type):
        return [vars(value)]
    return None


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All parameters and buffers; a tied one under each of its names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _shape_only(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta")


def replaced(template: nn.Module, new: Callable[[list[Tensor]], Tensor], modules: Sequence[nn.Module]) -> nn.Module:
    """A copy of the template whose tensors are `new` of the modules' tensors of that name; tied weights stay tied."""
    memo: dict[int, object] = {}  # deepcopy takes these instead of the tensors, and so never copies those
    for name, parameter in template.named_parameters():
        value = new([module.get_parameter(name) for module in modules])
        memo[id(parameter)] = nn.Parameter(value, requires_grad=parameter.requires_grad)
    for name, buffer in template.named_buffers():
        memo[id(buffer)] = new([module.get_buffer(name) for module in modules])
    return copy.deepcopy(template, memo)
