"""Random predictions, the metrics that score them, and the strategies that the tests share."""

import torch
from hypothesis import strategies as st

from degp import metrics

GAUSSIAN = [
    metrics.gaussian_nll,
    metrics.crps,
    metrics.coverage,
    metrics.interval_score,
    metrics.calibration_error,
    metrics.miscalibration_area,
]
CATEGORICAL = [
    metrics.accuracy,
    metrics.nll,
    metrics.brier,
    metrics.ece,
    metrics.adaptive_ece,
    metrics.classwise_ece,
]
DETECTION = [metrics.auroc, metrics.aupr, metrics.fpr_at_recall]
SELECTION = [metrics.aurc, metrics.error_at_coverage]

seeds = st.integers(0, 2**32 - 1)
bools = st.booleans()


def gaussian_case(seed, N=40, C=3, dtype=torch.float64):
    """Predictions whose variance is off by random factors, so that no calibration metric is near its trivial value."""
    rng = torch.Generator().manual_seed(seed)
    mean, noise, scale = (torch.randn(N, C, generator=rng, dtype=torch.float64) for _ in range(3))
    variance = (0.5 * scale).exp()
    return mean.to(dtype), variance.to(dtype), (mean + 1.5 * noise).to(dtype)


def categorical_case(seed, N=200, C=4, dtype=torch.float64):
    """Predictions overconfident in every other row and underconfident in the rest: calibration gaps of both signs."""
    rng = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(N, C, generator=rng, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=rng)[:, 0]
    sharpness = torch.tensor([3, 0.3]).repeat(N)[:N, None]
    return (sharpness * logits).softmax(-1).to(dtype), labels


def detection_case(seed, N=60, levels=15):
    """Scores on few levels, hence many ties, and at least one point of each kind."""
    rng = torch.Generator().manual_seed(seed)
    positives = torch.rand(N, generator=rng) < 0.4
    positives[:2] = torch.tensor([True, False])
    scores = torch.randint(levels, (N,), generator=rng) + 3 * positives
    return scores.double(), positives


def curves(curve):
    return [value for _, value in sorted(vars(curve).items())]
