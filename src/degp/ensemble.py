"""② An ensemble: M members of one kind, evaluated together; optionally heads on a shared backbone."""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Protocol, runtime_checkable
from weakref import ReferenceType

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from degp.distributed import ALONE, Mesh, require_same
from degp.execution import (
    Choice,
    Execution,
    Loop,
    Tensors,
    Vmap,
    fastest,
    kept_randomness,
    one_tensor,
    settle_cpu,
    workable,
)


@dataclass(frozen=True)
class Part:
    """Some of an ensemble's weights: stacked members, one member by itself, or the shared backbone.

    Attributes:
        architecture: a module whose parameters have the names and shapes of one member (their values mean nothing).
        parameters: the weights by name, with the member axis in front where `members` is not None.
        members: how many are stacked in `parameters`, if any.
        shared_by: how many members use these weights; of those that this rank owns, if several ranks share them out.
        rows: which of all members are stacked here.
    """

    architecture: nn.Module
    parameters: Mapping[str, Tensor]
    members: int | None
    shared_by: int = 1
    rows: slice = field(default_factory=lambda: slice(None))

    def among(self, weights: Mapping[str, Tensor]) -> Tensors:
        """Of weights for all members, such as anchors, those for the members of this part."""
        return {name: value if self.members is None else value[self.rows] for name, value in weights.items()}


@runtime_checkable
class HasParts(Protocol):
    """Whatever has weights in parts: an ensemble, or some of its members; of a split one, this rank's own."""

    def parts(self) -> list[Part]: ...

    def total(self, own: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """A sum over all members, from the sum over the own parts; with the gradient of the own."""
        ...


class Ensemble(nn.Module):
    """M networks as one module: inputs (N, …) to outputs (M, N, C).

    Members of one architecture have their parameters and buffers stacked along a new first axis and run by
    `torch.func.vmap`, with the values, gradients and BatchNorm statistics of a plain loop. What vmap cannot do runs by
    loop, and says so once. Members of different architectures are kept apart and run by loop too.

    Args:
        members: networks, or a function that makes one; each maps (N, …) to (N, C). They are copied.
        count: how many to make, where `members` is a function.
        backbone: a network shared by all members, which then map its features to outputs (weight sharing).
        execution: how to run stacked members; by default vmap where it works. `choose_execution` measures.

    Example:
        >>> ensemble = Ensemble(lambda: nn.Linear(3, 2), 5)
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    def __init__(
        self,
        members: Sequence[nn.Module] | Callable[[], nn.Module],
        count: int | None = None,
        *,
        backbone: nn.Module | None = None,
        execution: Execution | None = None,
    ) -> None:
        super().__init__()
        settle_cpu()  # here, before the first large computation of most programs
        modules = _make(members, count)
        difference = _difference(modules)
        if difference:
            warnings.warn(f"members run one after the other, because {difference}", stacklevel=2)
        self.stacked = None if difference else _stack(modules)
        self.separate = nn.ModuleList(copy.deepcopy(modules)) if difference else None
        self.backbone = backbone
        self.execution = Loop() if difference else execution
        self._untried = {True, False} if self.execution is None else set()  # training, evaluation: vmap may do one only
        self.mesh = ALONE
        self._size = len(modules)
        self._architecture = (_replaced(modules[0], _shape_only, modules[:1]),)  # in a tuple: not a submodule

    @classmethod
    def from_modules(cls, modules: Sequence[nn.Module], *, backbone: nn.Module | None = None) -> "Ensemble":
        """An ensemble of networks that exist already, trained or not; `to_modules` is the way back."""
        return cls(modules, backbone=backbone)

    def forward(self, inputs: Shaped[Tensor, "N ..."]) -> Float[Tensor, "M N C"]:
        """All members on the same inputs."""
        features = self._features(inputs)
        if self.separate is not None:
            outputs = _joined([one_tensor(member(features)) for member in self.separate])
        else:
            assert self.stacked is not None
            outputs = self._way(features)(self.stacked, self._own_parameters(), self._own_buffers(), features)
        return self.mesh.outputs(_checked(outputs, len(inputs)), len(self))

    def peek(self, inputs: Shaped[Tensor, "N ..."]) -> Float[Tensor, "M N C"]:
        """`forward` that leaves BatchNorm's running statistics as they were: for points that are not data."""
        with self._kept_buffers():
            return self(inputs)

    def choose_execution(self, inputs: Shaped[Tensor, "N ..."]) -> Choice:
        """Times the ways to run the members on these inputs and keeps the fastest; the numbers stay the same."""
        with torch.no_grad(), kept_randomness(inputs), self._kept_buffers():
            features = self._features(inputs)
        if self.stacked is None or self._way(features).name == "loop":
            return Choice(Loop(), {})
        choice = fastest(self.stacked, self._own_parameters(), self._own_buffers(), features)
        self.execution = choice.execution
        return choice

    def split(self, mesh: Mesh) -> "Ensemble":
        """This rank's block of the members, with a backbone whole; its outputs are still those of all, gathered.

        Every rank builds the whole ensemble and calls this at once; optimisers are made of what it gives back. One rank
        by itself keeps the ensemble as it is.
        """
        if mesh.world.size == 1:
            return self
        if self.mesh is not ALONE or self.stacked is None:
            raise ValueError(
                "only a whole ensemble of one architecture can be split over ranks, but this one is "
                + ("of several; train it on one" if self.stacked is None else "split already; call whole() first")
            )
        require_same(mesh.world, lambda: {"ensemble": self})
        own = self[mesh.block(len(self))]
        assert isinstance(own, Ensemble)
        own.mesh, own._size = mesh, len(self)
        return own

    def whole(self) -> "Ensemble":
        """All members of a split ensemble, gathered on every rank, which all must ask for it; itself where it is whole.

        For saving, exporting and looking at members; prediction and training do not need it.
        """
        if self.mesh.members.size == 1:
            return self
        assert self.stacked is not None
        stacked = _replaced(self.stacked, lambda own: self.mesh.all_members(own[0].detach(), len(self)), [self.stacked])
        members = [_taken(stacked, index) for index in range(len(self))]
        return Ensemble(members, backbone=copy.deepcopy(self.backbone), execution=self.execution).train(self.training)

    def parts(self) -> list[Part]:
        """All weights, in groups of one architecture each: what a prior over weights is applied to."""
        rows = self.mesh.block(len(self))
        own = rows.stop - rows.start
        shared = [] if self.backbone is None else [_part(self.backbone, shared_by=own)]
        if self.separate is not None:
            return [_part(member) for member in self.separate] + shared
        return [Part(self._architecture[0], self._own_parameters(), own, rows=rows), *shared]

    def total(self, own: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The sum over all members of what the parts on this rank sum to, with the gradient of these parts."""
        return self.mesh.total(own)

    def to_modules(self) -> list[nn.Module]:
        """Plain, independent networks, one a member; with a backbone, each gets a copy of it in front."""
        members = [self._member(index) for index in range(len(self))]
        if self.backbone is None:
            return members
        return [nn.Sequential(copy.deepcopy(self.backbone), member) for member in members]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice | Sequence[int]) -> "Ensemble | nn.Module":
        """`ensemble[3]`: that member as a plain network. `ensemble[:5]`, `ensemble[[0, 2]]`: a smaller ensemble."""
        if isinstance(index, int):
            return self.to_modules()[range(len(self))[index]]
        chosen = range(len(self))[index] if isinstance(index, slice) else index
        members = [self._member(range(len(self))[i]) for i in chosen]
        return Ensemble(members, backbone=copy.deepcopy(self.backbone), execution=self.execution).train(self.training)

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.to_modules())

    def extra_repr(self) -> str:
        way = self.execution.name if self.execution else "not yet chosen"
        return f"members={len(self)}, execution={way}"

    def _features(self, inputs: Tensor) -> Tensor:
        return inputs if self.backbone is None else self.backbone(inputs)

    def _way(self, features: Tensor) -> Execution:
        if self.execution is None or (self.training in self._untried and self.execution == Vmap()):
            assert self.stacked is not None
            self.execution = workable(self.stacked, self._own_parameters(), self._own_buffers(), features)
            self._untried.discard(self.training)
        return self.execution

    @contextmanager
    def _kept_buffers(self) -> Iterator[None]:
        homes = [module._buffers for module in self.modules()]
        before = [dict(home) for home in homes]
        for home, copies in zip(homes, copy.deepcopy(before), strict=True):
            home.update(copies)  # and not back by copying: backward may need the values that were used
        try:
            yield
        finally:
            for home, originals in zip(homes, before, strict=True):
                home.update(originals)

    def _own_parameters(self) -> Tensors:
        return dict(self.stacked.named_parameters()) if self.stacked is not None else {}

    def _own_buffers(self) -> Tensors:
        return dict(self.stacked.named_buffers()) if self.stacked is not None else {}

    def _member(self, index: int) -> nn.Module:
        if self.mesh.members.size > 1:
            raise ValueError(
                f"single members are taken from a whole ensemble, but this rank owns some of {len(self)} only; "
                f"call whole() on every rank first"
            )
        if self.separate is not None:
            return copy.deepcopy(self.separate[index])
        assert self.stacked is not None
        return _taken(self.stacked, index)


def _make(members: Sequence[nn.Module] | Callable[[], nn.Module], count: int | None) -> list[nn.Module]:
    if callable(members) and not isinstance(members, nn.Module):
        if count is None or count < 1:
            raise ValueError(f"a function that makes members needs how many: Ensemble(make, 10); count is {count}")
        modules = [members() for _ in range(count)]
    elif isinstance(members, nn.Module) and not isinstance(members, nn.ModuleList):
        raise TypeError(
            f"members must be a list of networks or a function that makes one, but it is one network, "
            f"a {type(members).__name__}"
        )
    else:
        modules = list(members)
        if count not in (None, len(modules)):
            raise ValueError(f"count is for a function, but it is {count} for a list of {len(modules)}")
    if not modules:
        raise ValueError("an ensemble needs at least one member, but the list of members is empty")
    for index, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise TypeError(f"every member must be a torch.nn.Module, but member {index} is a {type(module).__name__}")
    if len({id(module) for module in modules}) != len(modules):
        raise ValueError("members must be different objects, but one network stands in the list twice; deepcopy it")
    seen: dict[int, int] = {}
    for index, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            if seen.setdefault(id(parameter), index) != index:
                raise ValueError(
                    f"members must have weights of their own, but member {index} shares {name} with member "
                    f"{seen[id(parameter)]}; pass what is shared as backbone, or deepcopy it"
                )
    return modules


def _difference(modules: Sequence[nn.Module]) -> str | None:
    """What keeps the members from being stacked, in words; None where they are alike."""
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
    """A module's plain attributes, which stacked members would share: numbers, names, functions, hooks."""
    return {  # hooks without their keys, which are serial numbers
        name: list(value.values()) if "hook" in name and isinstance(value, Mapping) else value
        for name, value in vars(module).items()
        if name not in ("training", "_parameters", "_buffers", "_modules")
    }


def _counterparts(first: nn.Module, second: nn.Module) -> set[tuple[int, int]]:
    """Submodules and tensors of two members that stand in the same place: each member keeps its own."""
    listings = (nn.Module.named_modules, nn.Module.named_parameters, nn.Module.named_buffers)
    return {
        (id(one), id(other))
        for listing in listings
        for (_, one), (_, other) in zip(listing(first), listing(second), strict=True)
    }


def _same(one: Any, other: Any, alike: set[tuple[int, int]]) -> bool:
    """Whether two attributes do the same, also where `==` does not tell; what cannot be told counts as different."""
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
        return _same(*parts, alike | {(id(one), id(other))})  # what refers back to itself is met again inside
    try:
        return bool(one == other)
    except Exception:  # a comparison that fails tells nothing
        return False


def _inside(value: Any) -> list[Any] | None:
    """What makes up a function or a plain object; None where it is compared as a whole."""
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


def _part(module: nn.Module, shared_by: int = 1) -> Part:
    return Part(module, dict(module.named_parameters()), None, shared_by)


def _shape_only(tensors: list[Tensor]) -> Tensor:
    return torch.empty_like(tensors[0], device="meta")


def _taken(stacked: nn.Module, index: int) -> nn.Module:
    return _replaced(stacked, lambda tensors: tensors[0][index].detach().clone(), [stacked])


def _stack(modules: Sequence[nn.Module]) -> nn.Module:
    return _replaced(modules[0], lambda tensors: torch.stack([tensor.detach() for tensor in tensors]), modules)


def _replaced(template: nn.Module, new: Callable[[list[Tensor]], Tensor], modules: Sequence[nn.Module]) -> nn.Module:
    """A copy of the template with each tensor made `new` from the modules' tensors of that name; ties stay ties."""
    memo: dict[int, object] = {}  # deepcopy puts these in place of the tensors, and so never copies those
    for name, parameter in template.named_parameters():
        value = new([module.get_parameter(name) for module in modules])
        memo[id(parameter)] = nn.Parameter(value, requires_grad=parameter.requires_grad)
    for name, buffer in template.named_buffers():
        memo[id(buffer)] = new([module.get_buffer(name) for module in modules])
    return copy.deepcopy(template, memo)


def _joined(outputs: Sequence[Tensor]) -> Tensor:
    widths = [tuple(output.shape[1:]) for output in outputs]
    for index, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(
                f"members must have the same number of outputs, but member 0 gives {widths[0]} a point and "
                f"member {index} {width}; change the last layer of one"
            )
    return torch.stack(list(outputs))


def _checked(outputs: Tensor, num_points: int) -> Tensor:
    if outputs.ndim != 3 or outputs.shape[1] != num_points:
        raise ValueError(
            f"each member must map {num_points} points to ({num_points}, C) outputs, but one member's outputs have "
            f"shape {tuple(outputs.shape[1:])}; a single output is (N, 1), for example nn.Linear(…, 1)"
        )
    return outputs
