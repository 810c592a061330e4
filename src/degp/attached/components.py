"""Features of a network as inputs of the prior: principal components in one of three forms, and the prior's scales."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from degp.calibration import first_within_one_error
from degp.priors.evidence import Scales, most_likely_scales
from degp.priors.exact import ExactGP
from degp.typing import Batch

__all__ = ["scaled_components", "some_rows"]

EVIDENCE_ROWS = 1024  # more change the scales of 128 components little
FACTORS = 33  # inverse temperatures from 0.1 to 10


def scaled_components(
    features: Batch,
    most: int,
    *,
    labels: Int[Tensor, "N"] | None = None,
    generator: torch.Generator | None = None,
) -> tuple[nn.Sequential, Scales]:
    """Features to their first principal components, scaled for the prior; and the prior's scales, by evidence.

    Three forms compete: vectors of equal length, components at one common scale, and one relevance per component. The
    lowest NLL on held-out rows wins; for labels, the first form within one standard error of it, since few rows
    distinguish forms poorly. The evidence cannot choose: on images it prefers 128 relevances, which predict worse.

    Args:
        features: with real targets (N, C): standardised ones, or labels by `degp.priors.labels.as_real`.
        most: components.
        labels: where the targets stand for them.
        generator: for the rows that the evidence is measured on.
    """
    projection = _principal_components(features.inputs, most)
    kept = projection.out_features
    plain = nn.Sequential(projection)
    equal = nn.Sequential(projection, nn.RMSNorm(kept).to(projection.weight).requires_grad_(False))
    shared, own = (0,) * kept, tuple(range(kept))
    forms = [_Form(equal, shared), _Form(plain, shared), _Form(plain, own)]
    chosen = some_rows(features, generator)
    rows, classes = features[chosen], None if labels is None else labels[chosen]
    nll = torch.stack([form.held_out_nll(rows, classes) for form in forms])
    best = forms[int(nll.mean(1).argmin()) if labels is None else first_within_one_error(nll)]
    scales = best.fitted(rows)
    _apply(scales, best.layers[-1])
    return best.layers, scales


@dataclass(frozen=True)
class _Form:
    """Layers from features to points, and the group of each component; one relevance per group."""

    layers: nn.Sequential
    groups: tuple[int, ...]

    def fitted(self, rows: Batch) -> Scales:
        points = self.layers(rows.inputs).detach()
        return most_likely_scales(
            points,
            rows.targets,
            1,
            weights=rows.weights,
            groupings=[self.groups],
            most_rows=len(rows),
            generator=torch.Generator(points.device).manual_seed(0),  # all rows are used: the order decides rounding
        )

    def held_out_nll(self, rows: Batch, labels: Int[Tensor, "N"] | None) -> Float[Tensor, "K"]:
        """−log p(y) of every second row, given the others and the scales that they prefer.

        Labels are scored as classes, by the softmax of the mean at its best temperature: scored as real targets, 128
        relevances win on some images, but classify fewer of them correctly.
        """
        known, new = rows[::2], rows[1::2]
        scales = self.fitted(known)
        left, right = (scales.apply(self.layers(part.inputs).detach()) for part in (known, new))
        noise = scales.noise_variance if known.weights is None else scales.noise_variance / known.weights
        process = ExactGP.fit(scales.nngp(), left, known.targets, noise_variance=noise)
        mean = process.mean(right)
        if labels is not None:
            factors = torch.logspace(-1, 1, FACTORS, dtype=mean.dtype, device=mean.device)
            scores = torch.stack([cross_entropy(factor * mean, labels[1::2], reduction="none") for factor in factors])
            return scores[scores.mean(1).argmin()]
        variance = process.variance(right)[:, None] + scales.noise_variance
        return 0.5 * (variance.log() + (new.targets - mean).square() / variance).mean(1)


def some_rows(features: Batch, generator: torch.Generator | None) -> Int[Tensor, "N"]:
    """At most EVIDENCE_ROWS random rows, of positive weight."""
    order = torch.randperm(len(features), generator=generator, device=features.device)
    return (order if features.weights is None else order[features.weights[order] > 0])[:EVIDENCE_ROWS]


@torch.no_grad()
def _apply(scales: Scales, layer: nn.Module) -> None:
    """Makes the relevance part of the layer that gives the points."""
    weight = layer.get_parameter("weight")
    weight.copy_(scales.apply(weight.t()).t())
    if isinstance(layer, nn.Linear):
        layer.bias.copy_(scales.apply(layer.bias))


def _principal_components(features: Float[Tensor, "N D"], most: int) -> nn.Linear:
    """x ↦ (x − μ) V / s: the first principal components in one common unit, so that their mean variance is one."""
    x = features.double()
    mean, (N, D) = x.mean(0), x.shape
    x = x - mean
    variances, vectors = torch.linalg.eigh((x.mT @ x if D <= N else x @ x.mT) / N)  # ascending
    if not variances[-1] > 0:
        raise ValueError(
            f"the network's features must differ between points, but those of all {N} are equal; check the data"
        )
    kept = max(1, min(most, int((variances > 1e-12 * variances[-1]).sum())))
    variances, vectors = variances[-kept:].flip(0), vectors[:, -kept:].flip(1).mT
    if D > N:  # Gram matrix of points: its eigenvectors u give those of features, v = xᵀu / √(N variance)
        vectors = vectors @ x / (N * variances).sqrt()[:, None]
    unit = variances.mean().sqrt()
    layer = nn.Linear(D, kept, device=x.device, dtype=features.dtype).requires_grad_(False)
    layer.weight.copy_(vectors / unit)
    layer.bias.copy_(-(vectors @ mean) / unit)
    return layer
