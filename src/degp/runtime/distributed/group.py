"""Groups of ranks, their collective operations, and the bytes each rank sends; a group of one sends none."""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor

__all__ = ["Group"]

T = TypeVar("T")


class Group:
    """Some of the ranks that `torchrun` started, all of which must make the same calls in the same order.

    Args:
        handle: torch's group; None for a single rank.

    Attributes:
        rank: this rank's number in the group.
        size: how many ranks there are.
        alone: whether there is nobody to send to, and collective operations do nothing; set it to False to make a group
            of one send to itself, which shows on one GPU what many would do.
        sent: bytes of tensors this rank has sent, assuming the algorithms that send least. theory/distributed.md (5)

    Example:
        >>> group = Group()  # of one rank; `start` returns a mesh with groups of all ranks
        >>> group.gather(torch.zeros(2)), group.sent
        ([tensor([0., 0.])], 0.0)
    """

    def __init__(self, handle: dist.ProcessGroup | None = None) -> None:
        self.handle = handle
        self.rank = 0 if handle is None else handle.rank()
        self.size = 1 if handle is None else handle.size()
        self.alone = self.size == 1
        self.sent = 0.0

    def release(self) -> None:
        """Lets go of torch's group; nothing can be sent afterwards."""
        self.handle = None

    def gather(self, own: Shaped[Tensor, "..."]) -> list[Tensor]:
        """The tensors of all ranks, which have one shape, on every rank."""
        if self.alone:
            return [own]
        parts = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(parts, own.contiguous(), group=self.handle)
        self.sent += (self.size - 1) * own.nbytes
        return parts

    def collect(self, own: Shaped[Tensor, "..."]) -> list[Tensor]:
        """The tensors of all ranks, which have one shape, on the first rank; none on the others."""
        if self.alone:
            return [own]
        parts = [torch.empty_like(own) for _ in range(self.size)] if self.rank == 0 else None
        dist.gather(own.contiguous(), parts, group=self.handle, group_dst=0)
        self.sent += own.nbytes if self.rank else 0
        return parts or []

    def sum(self, own: Shaped[Tensor, "..."]) -> Tensor:
        """The sum over the ranks, as a new tensor."""
        if self.alone:
            return own
        total = own.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.handle)
        self.sent += 2 * (self.size - 1) / self.size * total.nbytes
        return total

    def mean(self, tensors: Sequence[Float[Tensor, "..."]], weight: int) -> list[Tensor]:
        """Σ_r w_r t_r / Σ_r w_r of each tensor, in one message that also holds the weights."""
        if self.alone or not tensors:
            return list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        total = self.sum(torch.cat([weight * flat, flat.new_full((1,), weight)]))
        means = (total[:-1] / total[-1]).split([tensor.numel() for tensor in tensors])
        return [mean.view_as(tensor).to(tensor.dtype) for mean, tensor in zip(means, tensors, strict=True)]

    def first(self, own: Shaped[Tensor, "..."]) -> Tensor:
        """This rank's tensor overwritten by the first rank's."""
        if not self.alone:
            dist.broadcast(own, group=self.handle, group_src=0)
        return own

    def agreed(self, own: T) -> T:
        """The first rank's plain value on all ranks, such as a time or a random seed."""
        return self.everyone(own)[0]

    def everyone(self, own: T) -> list[T]:
        """The plain values of all ranks, on every rank."""
        if self.alone:
            return [own]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, own, group=self.handle)
        return values

    def __deepcopy__(self, memo: dict[int, Any]) -> "Group":
        return self  # copies of an ensemble are on the same ranks
