"""Heads before their training: the prior by evidence, members drawn from it, and the method that trains them."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from degp.attached.components import scaled_components, some_rows
from degp.attached.heads import draw_heads
from degp.attached.starting import start_at_posterior
from degp.attached.targets import Targets
from degp.ensemble import Ensemble
from degp.likelihoods import Categorical, Gaussian
from degp.methods import DEGP, degp
from degp.priors.evidence import Scales, noise_by_target
from degp.typing import Batch

__all__ = ["Untrained", "prepare"]

# the prior's white part; where it is as large as the noise of real targets, heads fit the noise
REAL_EPSILON, CLASS_EPSILON = 0.001, 0.05


@dataclass(frozen=True)
class Untrained:
    """All that training needs.

    Attributes:
        ensemble: heads on the network's body and the projection of its features.
        points: what heads see of the data, and their targets.
        method: DE-GP with the prior and the likelihood of these data.
        scales: of the prior.
    """

    ensemble: Ensemble
    points: Batch
    method: DEGP
    scales: Scales


def prepare(
    body: nn.Module,
    features: Batch,
    targets: Targets,
    *,
    members: int,
    width: int,
    components: int,
    generator: torch.Generator | None,
) -> Untrained:
    """Heads for these targets of the body's features; arguments as in `attach`."""
    real = replace(features, targets=targets.real)
    projection, scales = scaled_components(real, components, labels=targets.labels, generator=generator)
    points = replace(features, inputs=projection(features.inputs).detach(), targets=targets.values)
    backbone = nn.Sequential(body, *projection)
    ensemble = draw_heads(scales, members, width, targets.outputs, backbone=backbone, generator=generator)
    if targets.units is None:
        method = degp(Categorical(), scales.nngp(), epsilon=CLASS_EPSILON)
    else:
        standardised = replace(points, targets=targets.real)
        rows = standardised[some_rows(points, generator)]
        noise = noise_by_target(scales, rows)
        start_at_posterior(ensemble.on_features(), rows, scales, noise, generator=generator)
        offset, unit = (values.tolist() for values in targets.units)
        likelihood = Gaussian(noise.tolist(), learned=True, units=(offset, unit))
        method = degp(likelihood, scales.nngp(), epsilon=REAL_EPSILON)
    return Untrained(ensemble, points, method.to(features.device), scales)  # a CUDA graph cannot copy from the CPU
