"""The mesh of ranks: a row holds one ensemble in blocks of members, a column the replicas of one block."""

import hashlib
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from degp.runtime.distributed.group import Group

__all__ = ["ALONE", "Mesh"]


class Mesh:
    """D × K ranks: D replicas of the ensemble, each in K blocks of members.        theory/distributed.md (1)

    `ALONE` is the mesh of one rank, which owns everything and sends nothing.

    Args:
        world: all ranks.
        replicas: the D ranks that own the same members as this one, and see other parts of each batch.
        members: the K ranks that own the other blocks, and see the same part of each batch.
        device: where this rank computes.

    Example:
        >>> mesh = Mesh()  # as from `start` without torchrun
        >>> mesh.block(10), mesh.is_first
        (slice(0, 10, None), True)
    """

    def __init__(
        self,
        world: Group | None = None,
        replicas: Group | None = None,
        members: Group | None = None,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.world, self.replicas, self.members = world or Group(), replicas or Group(), members or Group()
        self.device = torch.device(device)

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes files and prints."""
        return self.world.rank == 0

    @property
    def sent(self) -> float:
        """Bytes of tensors that this rank has sent so far."""
        return self.world.sent + self.replicas.sent + self.members.sent

    def block(self, count: int) -> slice:
        """Which of `count` members this rank owns: K blocks in order, the first of them larger by one where needed."""
        K, k = self.members.size, self.members.rank
        if count < K:
            raise ValueError(
                f"every rank must own at least one member, but there are {count} members for {K} ranks; "
                f"start fewer ranks, or split the batches between replicas: start(replicas={K // count})"
            )
        sizes = [count // K + (rank < count % K) for rank in range(K)]
        return slice(sum(sizes[:k]), sum(sizes[: k + 1]))

    def outputs(self, own: Float[Tensor, "m N C"], count: int) -> Float[Tensor, "M N C"]:
        """The outputs of all `count` members from those of each block, with gradients.  theory/distributed.md (2)"""
        return own if self.members.alone else _Outputs.apply(self, own, count)

    def total(self, own: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The sum over the blocks of each block's own value, with the gradient of the own value."""
        return own if self.members.alone else _Total.apply(self, own)

    def all_members(self, own: Shaped[Tensor, "m ..."], count: int) -> Shaped[Tensor, "M ..."]:
        """The rows of all `count` members from those of each block, on every rank."""
        if self.members.alone:
            return own
        return self._joined(self.members.gather(self._padded(own, count)), count)

    def collected(self, own: Shaped[Tensor, "m ..."], count: int) -> Shaped[Tensor, "_ ..."]:
        """The rows of all `count` members on the first rank, in the CPU's memory; no rows on the others."""
        if self.members.alone:
            return own
        parts = self.members.collect(self._padded(own, count))
        return self._joined([part.cpu() for part in parts], count) if parts else own[:0]

    def part(self, rows: Int[Tensor, "B"]) -> Int[Tensor, "_"]:
        """This replica's part of a batch's rows."""
        return rows.tensor_split(self.replicas.size)[self.replicas.rank]

    def draws(self, generator: torch.Generator, step: int) -> torch.Generator:
        """The source of this replica's random numbers in a step; the run's own generator, where there is one replica.

        Several replicas have one stream each, a function of the run's seed, the step and the replica: the parts of a
        batch may differ in size, and yet the generator that orders the data stays the same on all ranks.
        """
        if self.replicas.size == 1:
            return generator
        name = f"{generator.initial_seed()} {step} {self.replicas.rank}"
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
        return torch.Generator(generator.device).manual_seed(seed % 2**63)

    def _padded(self, own: Tensor, count: int) -> Tensor:
        """The block with as many rows as the largest has: ranks exchange tensors of one shape."""
        missing = -(-count // self.members.size) - len(own)
        return torch.cat([own, own.new_zeros(missing, *own.shape[1:])]) if missing else own

    def _joined(self, parts: list[Tensor], count: int) -> Tensor:
        K = self.members.size
        return torch.cat([part[: count // K + (rank < count % K)] for rank, part in enumerate(parts)])

    def __deepcopy__(self, memo: dict[int, Any]) -> "Mesh":
        return self  # copies of an ensemble are on the same ranks


ALONE = Mesh()


class _Outputs(torch.autograd.Function):
    """(g_own) ↦ (g₁ … g_M); backwards, the own rows of ∂L/∂g.        theory/distributed.md (2)

    Nothing is sent backwards: all ranks of a row evaluate the same loss L of the same outputs with the same draws, so
    that each has the whole ∂L/∂g. (If L were a sum over ranks, their gradients would have to be summed first.)
    """

    @staticmethod
    def forward(ctx: Any, mesh: Mesh, own: Tensor, count: int) -> Tensor:
        ctx.rows = mesh.block(count)
        return mesh.all_members(own, count)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        return None, gradient[ctx.rows], None


class _Total(torch.autograd.Function):
    """s_own ↦ Σ s over the blocks; backwards, the gradient as it is, since ∂(Σ s)/∂s_own = 1."""

    @staticmethod
    def forward(ctx: Any, mesh: Mesh, own: Tensor) -> Tensor:
        return mesh.members.sum(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, gradient
