"""Gradient clipping, member by member: each is clipped as it would be by itself."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from degp.ensemble import Ensemble
from degp.training.averaging import gradients_of

__all__ = ["clip_gradients"]


@torch.no_grad()
def clip_gradients(ensemble: Ensemble, max_norm: float) -> None:
    """gₘ ← gₘ min(1, c / ‖gₘ‖) with the norm over all of member m's own weights.

    The gradient of weights that members share is a sum over M members, and its bound is M c.
    """
    own = [gradients_of(ensemble.own_parameters())]
    if ensemble.separate is not None:
        own = [[gradient[None] for gradient in gradients_of(member.parameters())] for member in ensemble.separate]
    shared = [gradient[None] for gradient in gradients_of(ensemble.shared_parameters())]
    for gradients, bound in (*((part, max_norm) for part in own), (shared, max_norm * len(ensemble))):
        _clip(gradients, bound)


def _clip(gradients: Sequence[Float[Tensor, "M ..."]], bound: float) -> None:
    """Scales the rows of all tensors together, so that the norm of each row is at most the bound."""
    if not gradients:
        return
    norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients]).norm(dim=0)
    scale = (bound / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))
