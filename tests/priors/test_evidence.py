"""Scales by evidence: the log evidence is the exact marginal likelihood, and the maximum is found."""

import pytest
import torch

from degp.priors import ExactGP
from degp.priors.evidence import Scales, most_likely_scales


def data(targets=1, rows=30, noise=0.1):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    y = torch.sin(x[:, :1]) * torch.arange(1, targets + 1)
    return x, y + noise * torch.randn(rows, targets, generator=generator)


@pytest.mark.parametrize("targets", [1, 3])
def test_the_evidence_is_the_marginal_likelihood_of_its_prior(targets):
    x, y = data(targets)
    scales = most_likely_scales(x, y, 2)
    exact = ExactGP.fit(scales.nngp(), x, y, noise_variance=scales.noise_variance)
    assert exact.log_marginal_likelihood().item() == pytest.approx(scales.log_evidence, abs=1e-6)


@pytest.mark.parametrize("targets", [1, 3])
def test_no_neighbouring_scales_have_more_evidence(targets):
    x, y = data(targets)
    best = most_likely_scales(x, y, 2)
    for factor in (0.25, 4.0):
        for change in ("output_scale", "noise_variance", "input_scale"):
            other = Scales(**vars(best) | {change: factor * getattr(best, change)})
            exact = ExactGP.fit(other.nngp(), x, y, noise_variance=other.noise_variance)
            assert exact.log_marginal_likelihood().item() < best.log_evidence


def test_noise_is_found():
    x, y = data(rows=200, noise=0.3)
    assert most_likely_scales(x, y, 2).noise_variance == pytest.approx(0.09, rel=0.4)
