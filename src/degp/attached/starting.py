"""Heads that start at the posterior of their read-out, so that training has little left to do."""

import torch
from jaxtyping import Float
from torch import Tensor

from degp.attached.components import some_rows
from degp.ensemble import Ensemble
from degp.priors.evidence import READOUT_BIAS, Scales
from degp.typing import Batch

__all__ = ["start_at_posterior"]


@torch.no_grad()
def start_at_posterior(
    heads: Ensemble, points: Batch, scales: Scales, *, generator: torch.Generator | None = None
) -> None:
    """Draws the read-out of each head from its posterior given the hidden layer, in place.

        (HᵀWH + σ²S⁻¹) w = HᵀW (y + σ W^(−1/2) z) + σ²S⁻¹ w₀,        z ~ N(0, I)

    H has the hidden units of at most 1024 points and a one, y their standardised targets, W their weights; w₀ ~ N(0, S)
    is the read-out as drawn from the prior. Drawn from the prior alone, heads may start many standard deviations from
    the data, where targets depend on components of small variance.
    """
    assert heads.stacked is not None
    rows = points[some_rows(points, generator)]
    x, y, w = rows.inputs, rows.targets.double(), rows.weigh(torch.ones_like(rows.targets[:, 0])).double()[:, None]
    first, bias, last, constant = heads.stacked.parameters()
    K, spread, noise = last.shape[2], scales.output_scale, scales.noise_variance
    S = torch.tensor([spread / K] * K + [READOUT_BIAS * spread], dtype=y.dtype, device=x.device)
    for m in range(len(heads)):
        H = _with_one(torch.relu(x @ first[m].mT + bias[m]).double())
        drawn = torch.cat([last[m], constant[m][:, None]], 1).mT.double()  # (P, C)
        z = torch.randn(y.shape, dtype=y.dtype, device=y.device, generator=generator)
        precision = H.mT @ (w * H) + torch.diag(noise / S)
        right = H.mT @ (w * y + (noise * w).sqrt() * z) + (noise / S)[:, None] * drawn
        solved = torch.linalg.solve(precision, right).mT
        last[m], constant[m] = solved[:, :-1], solved[:, -1]


def _with_one(hidden: Float[Tensor, "N K"]) -> Float[Tensor, "N P"]:
    return torch.cat([hidden, hidden.new_ones(len(hidden), 1)], 1)
