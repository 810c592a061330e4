"""② An ensemble: M members evaluated together, independent or with weights in common."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble.construction import networks_from, require_initialised, stacked_if_alike
from degp.ensemble.layers import materialised
from degp.ensemble.modes import evaluation, is_frozen, kept_buffers
from degp.ensemble.outputs import checked, joined
from degp.ensemble.parts import Part
from degp.ensemble.saving import read_ensemble, write_ensemble
from degp.ensemble.stacking import Stacked
from degp.points import Inputs, count_points, join_points
from degp.runtime.distributed import ALONE, Mesh, require_same
from degp.runtime.execution import (
    Choice,
    Execution,
    Loop,
    Tensors,
    Vmap,
    by_name,
    kept_randomness,
    one_tensor,
    strategy_for,
    workable,
)
from degp.runtime.files import misfit

__all__ = ["Ensemble", "require_ensemble"]


class Ensemble(nn.Module):
    """M networks as one module: inputs (N, …) to outputs (M, N, C).

    Members of one architecture have their parameters and buffers stacked along a new first axis and run by
    `torch.func.vmap`, with the values, gradients and BatchNorm statistics of a plain loop. Networks that vmap does not
    support run in a loop, with one warning. Members of different architectures are not stacked and run in a loop too.

    A frozen backbone (no parameter has `requires_grad`) always runs in evaluation mode and is left exactly as it is,
    with its own mode. Light members of one network are made by `rank_one` and `lora`.

    Args:
        members: networks, trained or not, or a function that makes one; each maps (N, …) to (N, C). They are copied,
            and `to_modules` is the way back. Or networks that are stacked already.
        count: how many to make, where `members` is a function.
        backbone: a network shared by all members, which then map its features to outputs (weight sharing). Not copied.
        execution: the execution strategy of stacked members; by default `fit` chooses, and before it vmap or a loop.

    Example:
        >>> ensemble = Ensemble(lambda: nn.Linear(3, 2), 5)
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    def __init__(
        self,
        members: Sequence[nn.Module] | Callable[[], nn.Module] | Stacked,
        count: int | None = None,
        *,
        backbone: nn.Module | None = None,
        execution: Execution | None = None,
    ) -> None:
        super().__init__()
        made = members if isinstance(members, Stacked) else stacked_if_alike(networks_from(members, count))
        if backbone is not None:
            require_initialised("the backbone", backbone)
        whole = made if isinstance(made, Stacked) else None
        self.stacked = None if whole is None else whole.module
        self.separate = None if isinstance(made, Stacked) else nn.ModuleList(made)
        self.backbone = backbone
        self.execution = Loop() if whole is None else execution
        # training and evaluation mode that vmap has not run in yet: it may support one only
        self._untried = {True, False} if self.execution is None else set()
        self.mesh = ALONE
        self._size = made.members if isinstance(made, Stacked) else len(made)
        self._shared = frozenset[str]() if whole is None else whole.shared
        self._architecture = (None if whole is None else whole.architecture(),)  # in a tuple: not a submodule
        shared = self._shared_parameters().values()
        self._is_fixed = len(shared) > 0 and not any(parameter.requires_grad for parameter in shared)
        if self.stacked is not None and self._is_fixed:
            self.stacked.eval()

    @classmethod
    def load(
        cls, folder: Path | str, network: nn.Module | None = None, *, backbone: nn.Module | None = None
    ) -> "Ensemble":
        """The ensemble that `save` wrote, in evaluation mode, on the CPU; needs neither data nor method.

        Args:
            folder: where it was saved.
            network: one member, or what light members share, with any weights; needed where it is not an
                `nn.Sequential` of torch's layers. It is copied.
            backbone: likewise.
        """
        saved = read_ensemble(folder, network, backbone)
        ensemble = cls(saved.stacked, backbone=saved.backbone, execution=by_name(saved.execution))
        reason = misfit(ensemble.state_dict(), saved.tensors)
        if reason is not None:
            raise ValueError(f"{folder} must be loaded with the networks that it was saved with, but {reason}")
        ensemble.load_state_dict(dict(saved.tensors))
        return ensemble.eval()

    def save(self, folder: Path | str) -> None:
        """Saves weights, architecture and execution strategy to a new folder, which `load` reads; without pickle.

        All ranks of a split ensemble must call it; the first writes.
        """
        whole = self.whole()
        if whole.separate is not None:
            raise ValueError(
                "members of one architecture can be saved together, but these have several; save each of to_modules()"
            )
        if self.mesh.is_first:
            name = self.execution.name if self.execution else None
            write_ensemble(folder, whole._stack(), whole.backbone, execution=name, tensors=whole.state_dict())
        self.mesh.world.agreed(True)  # the others wait for the file

    def forward(self, inputs: Inputs) -> Float[Tensor, "M N C"]:
        """All members on the same inputs: a tensor (N, …), or tuples and dictionaries of tensors."""
        features = self._features(inputs)
        if self.separate is not None:
            outputs = joined([one_tensor(member(features)) for member in self.separate])
        else:
            assert self.stacked is not None
            outputs = self._strategy(features)(self.stacked, self._own_parameters(), self._own_buffers(), features)
        return self.mesh.outputs(checked(outputs, inputs), len(self))

    def train(self, mode: bool = True) -> "Ensemble":
        """Training or evaluation mode of everything that is not frozen."""
        self.training = mode
        for part in self._changing():
            part.train(mode)
        return self

    def peek(self, inputs: Inputs) -> Float[Tensor, "M N C"]:
        """`forward` that leaves BatchNorm's running statistics unchanged: for points that are not data."""
        with kept_buffers(self._changing()):
            return self(inputs)

    def joint_outputs(self, inputs: Inputs, measurement: Inputs) -> Float[Tensor, "M N C"]:
        """All members on a batch and on measurement points, in one pass.

        BatchNorm's statistics are those of all these points, in the batch and in its running averages: a measurement
        point meets the function that new inputs meet in evaluation mode.        theory/context.md (2)
        """
        return self(join_points([inputs, measurement]) if count_points(measurement) else inputs)

    def choose_execution(self, inputs: Inputs) -> Choice:
        """Sets the execution strategy for inputs like these, by `runtime.execution.strategy_for`."""
        if self.stacked is None:
            return Choice(Loop(), {})
        with torch.no_grad(), kept_randomness(inputs), kept_buffers(self._changing()):
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
        if mesh.world.alone:
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
        if self.mesh.members.alone:
            return self
        gathered = self._stack().mapped(lambda own: self.mesh.all_members(own.detach(), len(self)), len(self))
        return self._like(gathered)

    def parts(self) -> list[Part]:
        """All weights, in groups of one architecture each: what a prior over weights applies to."""
        rows = self.mesh.block(len(self))
        own = rows.stop - rows.start
        backbone = [] if self.backbone is None or is_frozen(self.backbone) else [_part(self.backbone, shared_by=own)]
        if self.separate is not None:
            return [_part(member) for member in self.separate] + backbone
        architecture, shared = self._architecture[0], self._shared_parameters()
        assert architecture is not None
        common = [Part(architecture, shared, None, own)] if shared and not self._is_fixed else []
        return [Part(architecture, self._own_parameters(), own, rows=rows), *common, *backbone]

    def total(self, own: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The sum over all members, from the sum over the parts on this rank; with the gradient of these parts."""
        return self.mesh.total(own)

    def on_features(self) -> "Ensemble":
        """The members without the backbone: the same weights, on its features, such as those of `cache_features`."""
        if self.backbone is None or self.stacked is None:
            raise ValueError("only stacked heads on a backbone have features, but this ensemble has none to leave out")
        heads = Ensemble(self._stack(), execution=self.execution)
        heads.mesh, heads._size = self.mesh, self._size
        return heads.train(self.training)

    def own_parameters(self) -> list[Tensor]:
        """Parameters with a member axis."""
        return list(self._own_parameters().values())

    def shared_parameters(self) -> list[Tensor]:
        """Parameters that all members use: the backbone's, and what light members have in common."""
        return [*self._shared_parameters().values(), *(() if self.backbone is None else self.backbone.parameters())]

    def has_member_axis(self, name: str) -> bool:
        """Whether an entry of `state_dict` has one row per member."""
        return name.startswith("stacked.") and name.removeprefix("stacked.") not in self._shared

    def to_modules(self) -> list[nn.Module]:
        """Plain, independent networks, one per member; with a backbone, each begins with a copy of it.

        Light layers become plain ones with the member's dense weights.
        """
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
        chosen = [range(len(self))[i] for i in (range(len(self))[index] if isinstance(index, slice) else index)]
        self._require_whole()
        if not chosen:
            raise ValueError("an ensemble needs at least one member, but none is chosen")
        if self.separate is not None:
            return self._like([self._member(i) for i in chosen])
        return self._like(self._stack().rows(chosen))

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.to_modules())

    def extra_repr(self) -> str:
        strategy = self.execution.name if self.execution else "not yet chosen"
        return f"members={len(self)}, execution={strategy}"

    def _features(self, inputs: Inputs) -> Inputs:
        if self.backbone is None:
            return inputs
        with evaluation(self.backbone) if is_frozen(self.backbone) else nullcontext():
            features = self.backbone(inputs)
        return features if type(features) in (tuple, list, dict) else one_tensor(features)

    def _changing(self) -> list[nn.Module]:
        """The parts that training may change: not a frozen backbone, nor light members of a frozen network."""
        stacked = self.stacked if not self._is_fixed else None
        backbone = self.backbone if self.backbone is not None and not is_frozen(self.backbone) else None
        return [part for part in (stacked, self.separate, backbone) if part is not None]

    def _stack(self) -> Stacked:
        assert self.stacked is not None
        rows = self.mesh.block(len(self))
        return Stacked(self.stacked, rows.stop - rows.start, self._shared)

    def _like(self, members: Stacked | Sequence[nn.Module]) -> "Ensemble":
        """Other members, with a copy of the same backbone, in the same mode."""
        other = Ensemble(members, backbone=copy.deepcopy(self.backbone), execution=self.execution)
        return other.train(self.training)

    def _strategy(self, features: Inputs) -> Execution:
        if self.execution is None or (self.training in self._untried and self.execution == Vmap()):
            assert self.stacked is not None
            self.execution = workable(self.stacked, self._own_parameters(), self._own_buffers(), features)
            self._untried.discard(self.training)
        return self.execution

    def _own_parameters(self) -> Tensors:
        named = () if self.stacked is None else self.stacked.named_parameters()
        return {name: parameter for name, parameter in named if name not in self._shared}

    def _own_buffers(self) -> Tensors:
        named = () if self.stacked is None else self.stacked.named_buffers()
        return {name: buffer for name, buffer in named if name not in self._shared}

    def _shared_parameters(self) -> Tensors:
        named = () if self.stacked is None else self.stacked.named_parameters()
        return {name: parameter for name, parameter in named if name in self._shared}

    def _member(self, index: int) -> nn.Module:
        self._require_whole()
        if self.separate is not None:
            return copy.deepcopy(self.separate[index])
        return materialised(self._stack().member(index))

    def _require_whole(self) -> None:
        if self.mesh.members.size > 1:
            raise ValueError(
                f"single members are taken from a whole ensemble, but this rank owns only some of the {len(self)}; "
                f"call whole() on every rank first"
            )


def require_ensemble(ensemble: object) -> None:
    """Raises TypeError for what is no ensemble, such as a single network."""
    if not isinstance(ensemble, Ensemble):
        raise TypeError(
            f"an ensemble must be a degp.Ensemble, but it is a {type(ensemble).__name__}; make one of networks with "
            f"degp.Ensemble(make_network, 10), or of one network with degp.attach or degp.lora"
        )


def _part(module: nn.Module, shared_by: int = 1) -> Part:
    return Part(module, dict(module.named_parameters()), None, shared_by)
