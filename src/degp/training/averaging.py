"""Where replicas of an ensemble meet: the losses, the gradients between backward and update, BatchNorm's statistics.

Each saw B_d points of a batch of B = Σ B_d, and has weight B_d / B. With one replica there is nothing to do.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from degp.ensemble import Ensemble
from degp.methods import Method
from degp.methods.contract import as_module
from degp.typing import Loss

__all__ = ["average_gradients", "average_loss", "average_statistics", "gradients_of"]


def average_loss(loss: Loss, ensemble: Ensemble, num_points: int) -> Loss:
    """ℓ = Σ_d (B_d / B) ℓ_d and its terms, as all replicas together have them.        theory/distributed.md (3)"""
    replicas = ensemble.mesh.replicas
    if replicas.alone:
        return loss
    values = [value.detach().double() for value in (loss.total, *loss.terms.values())]
    total, *terms = replicas.mean(values, num_points)
    return Loss(total, dict(zip(loss.terms, terms, strict=True)))


@torch.no_grad()
def average_gradients(ensemble: Ensemble, method: Method, num_points: int) -> None:
    """∂ℓ/∂w of every weight on this rank, from the replicas' own gradients.        theory/distributed.md (4)

    Members: the mean over the replicas of their block. Shared: the mean over the replicas of the sum over the blocks.
    The method's own parameters, whose gradient is the same for all blocks: the mean over all ranks.
    """
    mesh = ensemble.mesh
    if mesh.world.alone:
        return
    shared = gradients_of(ensemble.shared_parameters())
    members = gradients_of(ensemble.own_parameters())
    joint = gradients_of(as_module(method).parameters())
    _replace(members, mesh.replicas.mean(members, num_points))
    _replace(joint, mesh.world.mean(joint, num_points))
    blocks = mesh.members.size
    _replace(shared, [blocks * mean for mean in mesh.world.mean(shared, num_points)])  # a sum over the blocks


@torch.no_grad()
def average_statistics(ensemble: Ensemble) -> None:
    """BatchNorm's running statistics as the mean of the replicas': these are linear in those of the batches."""
    buffers = [buffer for buffer in ensemble.buffers() if buffer.is_floating_point()]
    _replace(buffers, ensemble.mesh.replicas.mean(buffers, 1))


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Those of the parameters that have one."""
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _replace(tensors: list[Tensor], values: list[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        if tensor is not value:
            tensor.copy_(value)
