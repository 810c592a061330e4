"""Heads that start at the posterior of their read-out, so that training has little left to do."""

import torch
from jaxtyping import Float
from torch import Tensor

from degp.ensemble import Ensemble
from degp.priors.evidence import READOUT_BIAS, Scales
from degp.priors.readouts import conditioned_readouts
from degp.typing import Batch

__all__ = ["start_at_posterior"]

CHUNK = 16  # members at a time, to bound memory


@torch.no_grad()
def start_at_posterior(
    heads: Ensemble,
    rows: Batch,
    scales: Scales,
    noise: Float[Tensor, "C"],
    *,
    generator: torch.Generator | None = None,
) -> None:
    """Draws the read-out of each head from its posterior given the hidden layer, in place (`conditioned_readouts`).

    Its features are the hidden units and a one, and its prior draws are the read-outs as they are. Drawn from the prior
    alone, heads may start many standard deviations from the data, where targets depend on components of small variance.

    Args:
        heads: with one hidden layer, drawn from the prior of the scales.
        rows: with standardised targets; weights are positive.
        noise: variance per target.
    """
    assert heads.stacked is not None
    x, y = rows.inputs, rows.targets.double()
    w = rows.weigh(torch.ones_like(y[:, 0]))
    first, bias, last, constant = heads.stacked.parameters()
    K, spread = last.shape[2], scales.output_scale
    variance = torch.tensor([spread / K] * K + [READOUT_BIAS * spread], dtype=y.dtype, device=x.device)
    normal = [torch.randn(y.shape, dtype=y.dtype, device=y.device, generator=generator) for _ in range(len(heads))]
    per_target = torch.vmap(conditioned_readouts, in_dims=(1, None, 1, None, 0, None), out_dims=1)

    def drawn(first: Tensor, bias: Tensor, prior: Tensor, z: Tensor) -> Float[Tensor, "P C"]:
        hidden = torch.relu(x @ first.mT + bias).double()
        features = torch.cat([hidden, torch.ones_like(hidden[:, :1])], 1)
        observed = y + (noise / w[:, None]).sqrt() * z
        return per_target(prior[..., None], features, observed[..., None], variance, noise, w).squeeze(2)

    prior = torch.cat([last, constant[..., None]], 2).mT.double()
    solved = torch.vmap(drawn, chunk_size=CHUNK)(first, bias, prior, torch.stack(normal)).mT
    last.copy_(solved[..., :-1])
    constant.copy_(solved[..., -1])
