"""Heads start at the posterior of their read-out: near the exact process before the first step."""

import torch
from torch.testing import assert_close

from degp import Batch
from degp.attached.heads import draw_heads
from degp.attached.starting import start_at_posterior
from degp.priors import ExactGP
from degp.priors.evidence import Scales
from degp.runtime.cpu import threads
from tests.fixtures import normal, seeded

SCALES = Scales(1, (1.0, 1.0, 1.0), 0.5, 4.0, 0.04)
X, NEW = normal(60, 3, dtype=torch.float32), normal(20, 3, seed=1, dtype=torch.float32)
Y = torch.cat([X[:, :1].sin() + 0.2 * normal(60, 1, seed=2, dtype=torch.float32), X[:, 1:2]], 1)


def started(points, members=200, width=400):
    heads = draw_heads(SCALES, members, width, 2, generator=seeded())
    start_at_posterior(heads, points, SCALES, noise(points), generator=seeded(1))
    return heads(NEW).detach()


def noise(points, *values):
    return torch.tensor(values or [SCALES.noise_variance] * points.targets.shape[1], dtype=torch.float64)


def test_started_heads_have_the_moments_of_the_exact_process():
    exact = ExactGP.fit(SCALES.nngp(), X, Y, noise_variance=SCALES.noise_variance)
    outputs = started(Batch(X, Y))
    assert_close(outputs.mean(0).double(), exact.mean(NEW), atol=0.1, rtol=0.1)
    ratio = outputs.var(0).mean(1) / exact.variance(NEW)
    assert 0.7 < float(ratio.min()) and float(ratio.max()) < 1.5


def test_each_target_has_its_own_noise():
    points, variances = Batch(X, Y), (0.04, 4.0)
    heads = draw_heads(SCALES, 50, 100, 2, generator=seeded())
    start_at_posterior(heads, points, SCALES, noise(points, *variances), generator=seeded(1))
    for c, variance in enumerate(variances):
        exact = ExactGP.fit(SCALES.nngp(), X, Y[:, [c]], noise_variance=variance)
        assert_close(heads(NEW).mean(0)[:, [c]].double(), exact.mean(NEW), atol=0.25, rtol=0.1)


def test_weights_count_points():
    """A point of weight two counts as two points."""
    chosen = torch.arange(60) < 20
    weights = torch.where(chosen, 2.0, 1.0)
    again = X[chosen].repeat(2, 1), Y[chosen].repeat(2, 1)
    repeated = Batch(torch.cat([X[~chosen], again[0]]), torch.cat([Y[~chosen], again[1]]))
    one, two = (started(points).mean(0) for points in (Batch(X, Y, weights=weights), repeated))
    assert_close(one, two, atol=0.05, rtol=0.1)


def test_heads_start_on_several_threads():
    """By LU they did not: torch's batched form of this size fails on some CPUs."""
    inputs = normal(400, 3, dtype=torch.float32)
    points, heads = Batch(inputs, inputs[:, :1].sin()), draw_heads(SCALES, 20, 256, 1, generator=seeded())
    with threads(2):
        start_at_posterior(heads, points, SCALES, noise(points), generator=seeded(1))
    assert bool(heads(NEW).isfinite().all())
