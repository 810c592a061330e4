"""② An ensemble: M members evaluated together; optionally heads on a shared backbone."""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from degp.ensemble.parts import Part
from degp.ensemble.stacking import difference, replaced, shape_only, stack, taken
from degp.runtime.distributed import ALONE, Mesh, require_same
from degp.runtime.execution import (
    Choice,
    Execution,
    Loop,
    Tensors,
    Vmap,
    kept_randomness,
    one_tensor,
    strategy_for,
    workable,
)

__all__ = ["Ensemble"]


class Ensemble(nn.Module):
    """M networks as one module: inputs (N, …) to outputs (M, N, C).

    Members of one architecture have their parameters and buffers stacked along a new first axis and run by
    `torch.func.vmap`, with the values, gradients and BatchNorm statistics of a plain loop. Networks that vmap does not
    support run in a loop, with one warning. Members of different architectures are not stacked and run in a loop too.

    Args:
        members: networks, or a function that makes one; each maps (N, …) to (N, C). They are copied.
        count: how many to make, where `members` is a function.
        backbone: a network shared by all members, which then map its features to outputs (weight sharing).
        execution: the execution strategy of stacked members; by default `fit` chooses, and before it vmap or a loop.

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
        modules = _make(members, count)
        if backbone is not None:
            _require_initialised("the backbone", backbone)
        reason = difference(modules)
        if reason:
            warnings.warn(f"members run one after the other, because {reason}", stacklevel=2)
        self.stacked = None if reason else stack(modules)
        self.separate = nn.ModuleList(copy.deepcopy(modules)) if reason else None
        self.backbone = backbone
        self.execution = Loop() if reason else execution
        # training and evaluation mode that vmap has not run in yet: it may support one only
        self._untried = {True, False} if self.execution is None else set()
        self.mesh = ALONE
        self._size = len(modules)
        self._architecture = (replaced(modules[0], shape_only, modules[:1]),)  # in a tuple: not a submodule

    @classmethod
    def from_modules(cls, modules: Sequence[nn.Module], *, backbone: nn.Module | None = None) -> "Ensemble":
        """An ensemble of existing networks, trained or not; `to_modules` is the inverse."""
        return cls(modules, backbone=backbone)

    def forward(self, inputs: Shaped[Tensor, "N ..."]) -> Float[Tensor, "M N C"]:
        """All members on the same inputs."""
        features = self._features(inputs)
        if self.separate is not None:
            outputs = _joined([one_tensor(member(features)) for member in self.separate])
        else:
            assert self.stacked is not None
            outputs = self._strategy(features)(self.stacked, self._own_parameters(), self._own_buffers(), features)
        return self.mesh.outputs(_checked(outputs, len(inputs)), len(self))

    def peek(self, inputs: Shaped[Tensor, "N ..."]) -> Float[Tensor, "M N C"]:
        """`forward` that leaves BatchNorm's running statistics unchanged: for points that are not data."""
        with self._kept_buffers():
            return self(inputs)

    def joint_outputs(
        self, inputs: Shaped[Tensor, "B ..."], measurement: Shaped[Tensor, "K ..."]
    ) -> Float[Tensor, "M N C"]:
        """All members on a batch and on measurement points, which do not enter BatchNorm's statistics."""
        if not len(measurement):
            return self(inputs)
        if any(True for _ in self.buffers()) or any(isinstance(module, _BatchNorm) for module in self.modules()):
            return torch.cat([self(inputs), self.peek(measurement)], dim=1)
        return self(torch.cat([inputs, measurement]))

    def choose_execution(self, inputs: Shaped[Tensor, "N ..."]) -> Choice:
        """Sets the execution strategy for inputs like these, by `runtime.execution.strategy_for`."""
        if self.stacked is None:
            return Choice(Loop(), {})
        with torch.no_grad(), kept_randomness(inputs), self._kept_buffers():
            features = self._features(inputs)
        choice = strategy_for(self.stacked, self._own_parameters(), self._own_buffers(), features)
        self.execution = choice.execution
        self._untried.discard(self.training)
        return choice

    def split(self, mesh: Mesh) -> "Ensemble":
        """This rank's block of the members, with the whole backbone; its outputs are those of all members, gathered.

        Every rank builds the whole ensemble and calls this first; optimisers take the parameters of the result. A
        single rank keeps the ensemble as it is.
        """
        if mesh.world.size == 1:
            return self
        if self.mesh is not ALONE or self.stacked is None:
            raise ValueError(
                "only a whole ensemble of one architecture can be split over ranks, but this one "
                + (
                    "has several; train it on one rank"
                    if self.stacked is None
                    else "is split already; call whole() first"
                )
            )
        require_same(mesh.world, lambda: {"ensemble": self})
        own = self[mesh.block(len(self))]
        assert isinstance(own, Ensemble)
        own.mesh, own._size = mesh, len(self)
        return own

    def whole(self) -> "Ensemble":
        """All members of a split ensemble, gathered on every rank; itself where it is not split.

        All ranks must call it. For saving, exporting and inspecting members; training and prediction do not need it.
        """
        if self.mesh.members.size == 1:
            return self
        assert self.stacked is not None
        stacked = replaced(self.stacked, lambda own: self.mesh.all_members(own[0].detach(), len(self)), [self.stacked])
        members = [taken(stacked, index) for index in range(len(self))]
        return Ensemble(members, backbone=copy.deepcopy(self.backbone), execution=self.execution).train(self.training)

    def parts(self) -> list[Part]:
        """All weights, in groups of one architecture each: what a prior over weights applies to."""
        rows = self.mesh.block(len(self))
        own = rows.stop - rows.start
        shared = [] if self.backbone is None else [_part(self.backbone, shared_by=own)]
        if self.separate is not None:
            return [_part(member) for member in self.separate] + shared
        return [Part(self._architecture[0], self._own_parameters(), own, rows=rows), *shared]

    def total(self, own: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The sum over all members, from the sum over the parts on this rank; with the gradient of these parts."""
        return self.mesh.total(own)

    def to_modules(self) -> list[nn.Module]:
        """Plain, independent networks, one per member; with a backbone, each begins with a copy of it."""
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
        strategy = self.execution.name if self.execution else "not yet chosen"
        return f"members={len(self)}, execution={strategy}"

    def _features(self, inputs: Tensor) -> Tensor:
        return inputs if self.backbone is None else self.backbone(inputs)

    def _strategy(self, features: Tensor) -> Execution:
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
            home.update(copies)  # swapped, not copied back: backward may need the values that were used
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
                f"single members are taken from a whole ensemble, but this rank owns only some of the {len(self)}; "
                f"call whole() on every rank first"
            )
        if self.separate is not None:
            return copy.deepcopy(self.separate[index])
        assert self.stacked is not None
        return taken(self.stacked, index)


def _make(members: Sequence[nn.Module] | Callable[[], nn.Module], count: int | None) -> list[nn.Module]:
    if callable(members) and not isinstance(members, nn.Module):
        if count is None or count < 1:
            raise ValueError(
                f"a function that makes members needs a count, as in Ensemble(make, 10), but it is {count}"
            )
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
        _require_initialised(f"member {index}", module)
    if len({id(module) for module in modules}) != len(modules):
        raise ValueError("members must be different objects, but one network is in the list twice; deepcopy it")
    seen: dict[int, int] = {}
    for index, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            if seen.setdefault(id(parameter), index) != index:
                raise ValueError(
                    f"members must have weights of their own, but member {index} shares {name} with member "
                    f"{seen[id(parameter)]}; pass what is shared as backbone, or deepcopy it"
                )
    return modules


def _require_initialised(name: str, module: nn.Module) -> None:
    lazy = [key for key, tensor in (*module.named_parameters(), *module.named_buffers()) if is_lazy(tensor)]
    if lazy:
        raise ValueError(
            f"weights must be initialised before an ensemble copies them, but {name} has {', '.join(lazy)} of a lazy "
            f"layer without a shape; call the network once on some inputs first"
        )


def _part(module: nn.Module, shared_by: int = 1) -> Part:
    return Part(module, dict(module.named_parameters()), None, shared_by)


def _joined(outputs: Sequence[Tensor]) -> Tensor:
    widths = [tuple(output.shape[1:]) for output in outputs]
    for index, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(
                f"members must have the same number of outputs, but member 0 has {widths[0]} per point and "
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
