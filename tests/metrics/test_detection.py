"""Detection and selective prediction agree with scikit-learn and torchmetrics, and with values computed by hand."""

import math

import pytest
import torch
import torchmetrics.functional.classification as torchmetrics
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch.testing import assert_close

from degp import metrics
from tests.metrics.cases import bools, detection_case, seeds


@given(seeds, st.integers(1, 40))
def test_detection_equals_sklearn_with_ties(seed, levels):
    scores, positives = detection_case(seed, levels=levels)
    false_rate, true_rate, _ = sklearn.roc_curve(positives, scores, drop_intermediate=False)
    assert metrics.auroc(scores, positives) == pytest.approx(sklearn.roc_auc_score(positives, scores))
    assert metrics.aupr(scores, positives) == pytest.approx(sklearn.average_precision_score(positives, scores))
    for recall in (0.5, 0.95, 1.0):
        assert metrics.fpr_at_recall(scores, positives, recall) == false_rate[true_rate >= recall].min()


def test_auroc_equals_torchmetrics():
    scores, positives = detection_case(1)
    theirs = torchmetrics.binary_auroc(scores / scores.max(), positives.long())
    assert metrics.auroc(scores, positives) == pytest.approx(theirs.item(), abs=1e-6)


def test_auroc_counts_ordered_pairs():
    scores, positives = detection_case(2)
    gap = scores[positives][:, None] - scores[~positives]
    assert metrics.auroc(scores, positives) == pytest.approx(((gap > 0).double() + (gap == 0) / 2).mean().item())


def test_recall_is_reached_exactly():
    """55 of 100 positives are a recall of 0.55, although 0.55 · 100 > 55 in floating point."""
    scores = torch.arange(101.0)
    positives = scores != 45  # one negative, below 55 positives
    assert metrics.fpr_at_recall(scores, positives, 0.55) == 0.0
    assert metrics.fpr_at_recall(scores, positives, 0.56) == 1.0


@given(st.lists(st.tuples(st.integers(-30, 30), bools), min_size=2).filter(lambda ps: len({p for _, p in ps}) == 2))
def test_auroc_depends_on_the_order_alone(points):
    scores, positives = torch.tensor([s for s, _ in points]).double(), torch.tensor([p for _, p in points])
    area = metrics.auroc(scores, positives)
    for increasing in (lambda s: s**3, torch.atan, lambda s: (s / 10).exp(), lambda s: 5 * s - 7):
        assert metrics.auroc(increasing(scores), positives) == pytest.approx(area, abs=1e-12)
    assert metrics.auroc(-scores, positives) == pytest.approx(1 - area, abs=1e-12)
    assert metrics.auroc(scores, ~positives) == pytest.approx(1 - area, abs=1e-12)


def test_risk_coverage_by_hand():
    uncertainty, errors = torch.tensor([0.4, 0.1, 0.3, 0.2]), torch.tensor([True, False, False, True])
    curve = metrics.risk_coverage_curve(uncertainty, errors)
    assert_close(curve.coverage, torch.tensor([0.25, 0.5, 0.75, 1.0]).double())
    assert_close(curve.risk, torch.tensor([0, 1 / 2, 1 / 3, 2 / 4], dtype=torch.float64))
    assert metrics.aurc(uncertainty, errors) == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 4)
    for coverage, risk in [(0.25, 0), (0.5, 1 / 2), (0.51, 1 / 3), (1.0, 1 / 2)]:
        assert metrics.error_at_coverage(uncertainty, errors, coverage) == pytest.approx(risk)


def test_tied_uncertainties_average_over_their_orders():
    """Two ties, one of them wrong: kept in either order the risks are (0, ½) or (1, ½)."""
    curve = metrics.risk_coverage_curve(torch.tensor([0.3, 0.3]), torch.tensor([True, False]))
    assert_close(curve.risk, torch.tensor([0.5, 0.5]).double())


@given(st.lists(st.tuples(st.integers(0, 5), bools), min_size=1))
def test_aurc_lies_between_best_order_and_worst(points):
    uncertainty, errors = torch.tensor([float(u) for u, _ in points]), torch.tensor([e for _, e in points])
    best, worst = metrics.aurc(errors.double(), errors), metrics.aurc(-errors.double(), errors)
    assert 0 <= best <= metrics.aurc(uncertainty, errors) + 1e-12
    assert metrics.aurc(uncertainty, errors) - 1e-12 <= worst <= 1 + 1e-12
    assert metrics.error_at_coverage(uncertainty, errors, 1.0) == pytest.approx(errors.double().mean().item())


def test_selection_by_a_loss():
    uncertainty, loss = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    assert metrics.aurc(uncertainty, loss) == pytest.approx((3 + 4) / 2)


def test_error_versus_uncertainty_by_hand():
    """Maximum 4, so the pooled uncertainties are ¼, ½, ¾ (test) and ½, 1 (out of distribution, always wrong)."""
    uncertainty, errors = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([False, True, False])
    curve = metrics.error_versus_uncertainty(uncertainty, errors, torch.tensor([2.0, 4.0]), num_thresholds=5)
    assert curve.threshold.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert curve.kept.tolist() == [0, 1, 3, 4, 5]
    assert_close(curve.error, torch.tensor([math.nan, 0, 2 / 3, 2 / 4, 3 / 5], dtype=torch.float64), equal_nan=True)


@given(seeds, st.floats(0.1, 10))
def test_error_versus_uncertainty_equals_a_direct_count_at_any_scale(seed, scale):
    rng = torch.Generator().manual_seed(seed)
    test, ood = torch.rand(30, generator=rng).double(), 1.2 * torch.rand(20, generator=rng).double()
    errors = torch.rand(30, generator=rng) < test
    curve = metrics.error_versus_uncertainty(scale * test, errors, scale * ood, num_thresholds=7)
    largest = max(test.max(), ood.max())
    for t, error, kept in zip(curve.threshold, curve.error, curve.kept, strict=True):
        sure_test, sure_ood = test / largest <= t + 1e-12, ood / largest <= t + 1e-12
        assert kept == sure_test.sum() + sure_ood.sum()
        assert kept == 0 or error.item() == pytest.approx(
            ((errors & sure_test).sum() + sure_ood.sum()).item() / kept.item()
        )
