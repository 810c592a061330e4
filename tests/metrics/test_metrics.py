"""Properties of all metrics: invariant to the order of the points, float64, no gradients, equal on every device."""

import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from degp import metrics
from tests.metrics.cases import (
    CATEGORICAL,
    DETECTION,
    GAUSSIAN,
    SELECTION,
    categorical_case,
    curves,
    detection_case,
    gaussian_case,
    seeds,
)


@given(seeds)
def test_metrics_are_invariant_to_the_order_of_the_points(seed):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
    cases = [(GAUSSIAN, gaussian_case(seed)), (CATEGORICAL, categorical_case(seed, N=40))]
    cases += [(DETECTION + SELECTION, detection_case(seed, N=40))]
    for family, arguments in cases:
        for metric in family:
            assert metric(*(a[order] for a in arguments)) == pytest.approx(metric(*arguments), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_is_computed_in_float64(dtype):
    """The inputs are rounded, the arithmetic is not: the result is that of the rounded inputs in float64."""
    arguments = gaussian_case(7, dtype=dtype)
    for metric in GAUSSIAN:
        assert metric(*arguments) == metric(*(a.double() for a in arguments))
    assert metrics.pit(*arguments).dtype == torch.float64
    scores, positives = detection_case(7)
    assert metrics.auroc(scores.to(dtype), positives) == metrics.auroc(scores, positives)


def test_parameters_that_require_gradients_are_scored():
    mean, variance, targets = gaussian_case(8)
    assert metrics.crps(mean.requires_grad_(), variance, targets) == metrics.crps(mean.detach(), variance, targets)
    assert not metrics.pit(mean, variance, targets).requires_grad


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_numbers():
    cases = [(GAUSSIAN, gaussian_case(9)), (CATEGORICAL, categorical_case(9))]
    cases += [(DETECTION + SELECTION, detection_case(9))]
    for family, arguments in cases:
        for metric in family:
            assert metric(*(a.cuda() for a in arguments)) == pytest.approx(metric(*arguments), rel=1e-12)
    records = [
        (metrics.calibration_curve, gaussian_case(9)),
        (metrics.reliability_curve, categorical_case(9)),
        (metrics.risk_coverage_curve, detection_case(9)),
        (metrics.error_versus_uncertainty, (*detection_case(9), torch.arange(30.0))),
    ]
    for record, arguments in records:
        ours, theirs = curves(record(*(a.cuda() for a in arguments))), curves(record(*arguments))
        for a, b in zip(ours, theirs, strict=True):
            assert a.is_cuda
            assert_close(a.cpu(), b, equal_nan=True)
