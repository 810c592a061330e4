"""Metrics agree with scikit-learn, torchmetrics and scipy, obey their laws, and refuse what they cannot score."""

import math
import re

import jaxtyping
import numpy as np
import pytest
import torch
import torchmetrics.functional.classification as torchmetrics
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn import metrics as sklearn
from torch.testing import assert_close

from degp import metrics
from degp.metrics.checks import working_device

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
    """Predictions too sure in every other row and too unsure in the rest: calibration gaps of both signs."""
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


# Regression


@pytest.mark.parametrize("N, C", [(1, 1), (7, 1), (30, 3)])
def test_gaussian_nll_is_the_normal_log_density(N, C):
    mean, variance, targets = gaussian_case(0, N, C)
    log_density = stats.norm.logpdf(targets.numpy(), mean.numpy(), variance.sqrt().numpy())
    assert metrics.gaussian_nll(mean, variance, targets) == pytest.approx(-log_density.sum(-1).mean(), rel=1e-13)


def test_point_errors_equal_sklearn():
    mean, _, targets = gaussian_case(1)
    assert metrics.rmse(mean, targets) == pytest.approx(math.sqrt(sklearn.mean_squared_error(targets, mean)))
    assert metrics.mae(mean, targets) == pytest.approx(sklearn.mean_absolute_error(targets, mean))


@pytest.mark.parametrize("mean, std, target", [(0.0, 1.0, 0.0), (1.0, 0.5, 3.0), (-2.0, 3.0, -2.5)])
def test_crps_equals_its_integral(mean, std, target):
    below = integrate.quad(lambda x: stats.norm.cdf(x, mean, std) ** 2, -np.inf, target)[0]
    above = integrate.quad(lambda x: stats.norm.sf(x, mean, std) ** 2, target, np.inf)[0]
    column = [torch.tensor([[value]], dtype=torch.float64) for value in (mean, std**2, target)]
    assert metrics.crps(*column) == pytest.approx(below + above, rel=1e-6)


@given(seeds)
def test_crps_is_positive_and_becomes_the_absolute_error(seed):
    mean, variance, targets = gaussian_case(seed)
    error = metrics.mae(mean, targets)
    most = (
        error + (math.sqrt(2 / math.pi) - 1 / math.sqrt(math.pi)) * variance.sqrt().mean().item()
    )  # z erf ≤ |z|, φ ≤ φ(0)
    assert 0 < metrics.crps(mean, variance, targets) < most
    assert metrics.crps(mean, torch.full_like(mean, 1e-24), targets) == pytest.approx(error, rel=1e-9)


def test_pit_is_the_normal_distribution_function():
    mean, variance, targets = gaussian_case(2)
    expected = stats.norm.cdf(targets.numpy(), mean.numpy(), variance.sqrt().numpy())
    assert_close(metrics.pit(mean, variance, targets), torch.from_numpy(expected))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9, 0.999])
def test_interval_metrics_equal_scipy_intervals(level):
    mean, variance, targets = gaussian_case(3, N=300)
    y = targets.numpy()
    lower, upper = stats.norm.interval(level, mean.numpy(), variance.sqrt().numpy())
    score = upper - lower + 2 / (1 - level) * (np.maximum(lower - y, 0) + np.maximum(y - upper, 0))
    assert metrics.coverage(mean, variance, targets, level) == pytest.approx(((lower <= y) & (y <= upper)).mean())
    assert metrics.interval_width(variance, level) == pytest.approx((upper - lower).mean())
    assert metrics.interval_score(mean, variance, targets, level) == pytest.approx(score.mean())


@given(seeds, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_coverage_and_width_grow_with_level(seed, one, other):
    mean, variance, targets = gaussian_case(seed)
    low, high = sorted([one, other])
    assert metrics.coverage(mean, variance, targets, low) <= metrics.coverage(mean, variance, targets, high)
    assert metrics.interval_width(variance, low) <= metrics.interval_width(variance, high)


def test_calibration_error_counts_scipy_intervals():
    mean, variance, targets = gaussian_case(4)
    expected = np.linspace(0, 1, 100)
    lower, upper = stats.norm.interval(expected[:, None, None], mean.numpy(), variance.sqrt().numpy())
    observed = ((lower <= targets.numpy()) & (targets.numpy() <= upper)).mean((1, 2))
    curve = metrics.calibration_curve(mean, variance, targets)
    assert_close(curve.expected, torch.from_numpy(expected))
    assert_close(curve.observed, torch.from_numpy(observed))
    assert metrics.calibration_error(mean, variance, targets) == pytest.approx(np.abs(observed - expected).mean())


def test_intervals_are_closed():
    """A target on the mean lies in the interval of level 0, which is the mean alone."""
    curve = metrics.calibration_curve(torch.zeros(4, 1), torch.ones(4, 1), torch.tensor([[0.0], [0.0], [0.0], [1.0]]))
    assert curve.observed[[0, -1]].tolist() == [0.75, 1.0]


def test_calibration_of_exact_quantiles_is_nearly_perfect():
    """Targets on the quantiles of the prediction are calibrated to 1/N; with four times the variance they are not."""
    N = 1000
    targets = torch.from_numpy(stats.norm.ppf((np.arange(N) + 0.5) / N))[:, None]
    mean, variance = torch.zeros_like(targets), torch.ones_like(targets)
    assert metrics.calibration_error(mean, variance, targets) < 1 / N
    assert metrics.miscalibration_area(mean, variance, targets) < 1 / N
    assert metrics.coverage(mean, 4 * variance, targets, 0.5) == pytest.approx(
        2 * stats.norm.cdf(2 * 0.67449) - 1, abs=2 / N
    )
    assert metrics.calibration_error(mean, 4 * variance, targets) > 0.1


def test_miscalibration_area_by_hand():
    """Levels 0, ½, 1: a triangle of area ¼ below the diagonal if no target is in the half interval, above if all."""
    mean, variance = torch.zeros(2, 1), torch.ones(2, 1)
    assert metrics.miscalibration_area(mean, variance, torch.full((2, 1), 5.0), num_levels=3) == pytest.approx(0.25)
    assert metrics.miscalibration_area(mean, variance, torch.full((2, 1), 0.1), num_levels=3) == pytest.approx(0.25)


def test_miscalibration_area_of_a_curve_that_crosses_the_diagonal():
    """Levels 0, ⅓, ⅔, 1 and observed 0, ½, ½, 1: gaps 0, ⅙, −⅙, 0, so triangles of areas 1/36, 1/72, 1/72, 1/36."""
    targets = torch.tensor([[0.1], [5.0]])
    area = metrics.miscalibration_area(torch.zeros(2, 1), torch.ones(2, 1), targets, num_levels=4)
    assert area == pytest.approx(1 / 36 + 2 / 72 + 1 / 36)


# Classification


@pytest.mark.parametrize("N, C", [(1, 2), (50, 2), (200, 7)])
def test_classification_scores_equal_sklearn(N, C):
    probabilities, labels = categorical_case(0, N, C)
    classes = range(C)
    assert metrics.accuracy(probabilities, labels) == sklearn.accuracy_score(labels, probabilities.argmax(-1))
    assert metrics.nll(probabilities, labels) == pytest.approx(sklearn.log_loss(labels, probabilities, labels=classes))
    one_hot = torch.eye(C)[labels]
    by_class = [sklearn.mean_squared_error(one_hot[:, c], probabilities[:, c]) for c in classes]
    assert metrics.brier(probabilities, labels) == pytest.approx(sum(by_class))


def test_brier_of_two_classes_is_twice_the_binary_one():
    probabilities, labels = categorical_case(1, C=2)
    assert metrics.brier(probabilities, labels) == pytest.approx(
        2 * sklearn.brier_score_loss(labels, probabilities[:, 1])
    )


def test_impossible_truth_costs_infinitely_much():
    probabilities = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert metrics.nll(probabilities, torch.tensor([1, 0])) == math.inf
    assert metrics.nll(probabilities, torch.tensor([0, 0])) == pytest.approx(math.log(2) / 2)


def test_entropy_equals_scipy_and_is_zero_when_certain():
    probabilities, _ = categorical_case(2)
    assert_close(metrics.entropy(probabilities), torch.from_numpy(stats.entropy(probabilities.numpy(), axis=-1)))
    assert metrics.entropy(torch.tensor([[0.0, 1.0, 0.0]])).tolist() == [0.0]


@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_ece_equals_torchmetrics(num_bins):
    probabilities, labels = categorical_case(3, N=500)
    theirs = torchmetrics.multiclass_calibration_error(probabilities, labels, 4, n_bins=num_bins, norm="l1")
    assert metrics.ece(probabilities, labels, num_bins) == pytest.approx(theirs.item(), abs=1e-6)


def test_ece_puts_certainty_into_the_last_bin():
    """A right answer at 1 and a wrong one at 0.95 share a bin: |½ − 0.975|, and not ½·0 + ½·0.95."""
    probabilities = torch.tensor([[1.0, 0.0], [0.95, 0.05]], dtype=torch.float64)
    assert metrics.ece(probabilities, torch.tensor([0, 1]), num_bins=10) == pytest.approx(0.475)


def test_classwise_ece_averages_the_binary_errors():
    probabilities, labels = categorical_case(4, N=300, C=3)
    by_class = [
        torchmetrics.binary_calibration_error(
            probabilities[:, c].contiguous(), (labels == c).long(), n_bins=15, norm="l1"
        ).item()
        for c in range(3)
    ]
    assert metrics.classwise_ece(probabilities, labels) == pytest.approx(np.mean(by_class), abs=1e-6)


def test_adaptive_ece_bins_hold_equal_numbers():
    """Sixty points by increasing confidence, seven right, seven wrong, and so on, in six bins of ten."""
    confidence = torch.linspace(0.5, 1, 60, dtype=torch.float64)
    labels = torch.arange(60) // 7 % 2
    gaps = ((labels == 0).double() - confidence).reshape(6, 10).mean(-1)
    shuffled = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    probabilities = torch.stack([confidence, 1 - confidence], -1)[shuffled]
    assert metrics.adaptive_ece(probabilities, labels[shuffled], num_bins=6) == pytest.approx(gaps.abs().mean().item())


def test_adaptive_ece_keeps_equal_confidences_together():
    """Six points at 0.75, three of them right, are one bin whatever their order."""
    probabilities = torch.tensor([[0.75, 0.25]]).repeat(6, 1)
    for labels in ([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]):
        assert metrics.adaptive_ece(probabilities, torch.tensor(labels), num_bins=3) == pytest.approx(0.25)


@given(seeds, st.integers(1, 30), st.integers(1, 20))
def test_calibration_errors_lie_in_the_unit_interval_and_refine(seed, N, num_bins):
    """Merging all bins into one can only cancel gaps, so one bin gives the least error."""
    probabilities, labels = categorical_case(seed, N)
    for error in (metrics.ece, metrics.adaptive_ece, metrics.classwise_ece):
        assert 0 <= error(probabilities, labels, 1) <= error(probabilities, labels, num_bins) + 1e-12 <= 1 + 2e-12


def test_reliability_curve_by_hand():
    probabilities = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], dtype=torch.float64)
    curve = metrics.reliability_curve(
        probabilities, torch.tensor([0, 0, 0]), num_bins=4
    )  # [½, ¾) holds 1, [¾, 1] holds 2
    assert curve.count.tolist() == [0, 0, 1, 2]
    assert_close(curve.confidence, torch.tensor([math.nan, math.nan, 0.6, 0.85]).double(), equal_nan=True)
    assert_close(curve.accuracy, torch.tensor([math.nan, math.nan, 1.0, 0.5]).double(), equal_nan=True)


def test_a_confidence_on_an_edge_belongs_to_the_upper_bin():
    curve = metrics.reliability_curve(torch.tensor([[0.5, 0.5], [0.25, 0.75]]), torch.tensor([0, 0]), num_bins=4)
    assert curve.count.tolist() == [0, 0, 1, 1]


def test_reliability_curve_adds_up_to_ece():
    probabilities, labels = categorical_case(6)
    curve = metrics.reliability_curve(probabilities, labels)
    gaps = (curve.accuracy - curve.confidence).abs() * curve.count / len(labels)
    assert metrics.ece(probabilities, labels) == pytest.approx(gaps.nansum().item())


# Detection and selection


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


def test_equal_uncertainties_give_the_average_over_their_orders():
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
def test_error_versus_uncertainty_counts_directly_whatever_the_scale(seed, scale):
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


# What holds for all


@given(seeds)
def test_order_of_the_points_does_not_matter(seed):
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


def test_only_mps_moves_to_the_cpu():
    assert working_device(torch.device("mps")) == torch.device("cpu")
    assert working_device(torch.device("cuda", 1)) == torch.device("cuda", 1)


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


# What is refused

COLUMN = torch.ones(3, 1)
HALVES = torch.full((3, 2), 0.5)
LABELS = torch.tensor([0, 1, 1])
SCORES = torch.tensor([0.1, 0.2, 0.3])
MASK = torch.tensor([True, False, True])
NAN = torch.tensor([0.1, math.nan, math.inf])

REFUSED = {
    "other length": (
        lambda: metrics.rmse(COLUMN, torch.ones(2, 1)),
        "targets must have the shape of mean, (3, 1), but has (2, 1); pass the same points in both",
    ),
    "broadcastable": (
        lambda: metrics.gaussian_nll(COLUMN, torch.ones(3, 2), COLUMN),
        "variance must have the shape of mean, (3, 1), but has (3, 2)",
    ),
    "vector for column": (
        lambda: metrics.mae(SCORES, SCORES),
        "mean must have the axes (N, C), but has the shape (3,); use mean[:, None] to make a column",
    ),
    "no rows": (
        lambda: metrics.rmse(torch.ones(0, 2), torch.ones(0, 2)),
        "mean must hold at least one value, but has the shape (0, 2); is the data or a mask empty?",
    ),
    "not finite": (
        lambda: metrics.mae(COLUMN, NAN[:, None]),
        "targets must be finite, but 2 of 3 values are nan or infinite; locate them with (~torch.isfinite(targets))",
    ),
    "zero variance": (
        lambda: metrics.crps(COLUMN, 0 * COLUMN, COLUMN),
        "variance must be positive, but the smallest is 0; add the noise variance",
    ),
    "negative variance": (
        lambda: metrics.interval_width(-2 * COLUMN),
        "variance must be positive, but the smallest is -2",
    ),
    "level in per cent": (
        lambda: metrics.coverage(COLUMN, COLUMN, COLUMN, level=90.0),
        "level must lie strictly between 0 and 1, but is 90.0; write 0.9 for 90 %",
    ),
    "level one": (lambda: metrics.interval_width(COLUMN, 1.0), "level must lie strictly between 0 and 1, but is 1.0"),
    "level zero": (
        lambda: metrics.interval_score(COLUMN, COLUMN, COLUMN, 0.0),
        "level must lie strictly between 0 and 1, but is 0.0",
    ),
    "one level": (
        lambda: metrics.calibration_error(COLUMN, COLUMN, COLUMN, num_levels=1),
        "num_levels must be at least 2, but is 1",
    ),
    "logits": (
        lambda: metrics.nll(torch.tensor([[2.0, -1.5]]), torch.tensor([0])),
        "probabilities must be non-negative, but the smallest is -1.5; if these are logits, pass logits.softmax(-1)",
    ),
    "unnormalised": (
        lambda: metrics.entropy(torch.tensor([[0.5, 0.5], [0.5, 0.501]])),
        "probabilities must sum to one over the classes, to within 0.0001, but row 1 sums to 1.001; compute",
    ),
    "probabilities not finite": (
        lambda: metrics.entropy(torch.tensor([[math.nan, 1.0]])),
        "probabilities must be finite, but 1 of 2 values are nan or infinite",
    ),
    "no probabilities": (
        lambda: metrics.accuracy(torch.ones(0, 2), torch.ones(0, dtype=torch.int64)),
        "probabilities must hold at least one value, but has the shape (0, 2)",
    ),
    "fewer labels": (
        lambda: metrics.accuracy(HALVES, LABELS[:2]),
        "labels must hold one class for each of the 3 rows of probabilities, but hold 2; pass the same points in both",
    ),
    "label too large": (
        lambda: metrics.brier(HALVES, LABELS + 1),
        "labels must lie in 0..1, one column of probabilities each, but 2 is among them; renumber the classes",
    ),
    "label negative": (lambda: metrics.ece(HALVES, LABELS - 1), "labels must lie in 0..1, one column of probabilities"),
    "float labels": (
        lambda: metrics.nll(HALVES, LABELS.float()),
        "labels must be integers, but have dtype torch.float32; write labels.long()",
    ),
    "one-hot labels": (
        lambda: metrics.nll(HALVES, torch.ones(3, 2, dtype=torch.int64)),
        "labels must have the axes (N), but has the shape (3, 2)",
    ),
    "no bins": (lambda: metrics.ece(HALVES, LABELS, 0), "num_bins must be at least 1, but is 0"),
    "no adaptive bins": (lambda: metrics.adaptive_ece(HALVES, LABELS, 0), "num_bins must be at least 1, but is 0"),
    "integer mask": (
        lambda: metrics.auroc(SCORES, LABELS),
        "positives must be a boolean mask, but has dtype torch.int64; write positives == 1 if it holds 0 and 1",
    ),
    "shorter mask": (
        lambda: metrics.auroc(SCORES, MASK[:2]),
        "positives must have the shape of scores, (3,), but has (2,)",
    ),
    "no positives": (
        lambda: metrics.auroc(SCORES, MASK & ~MASK),
        "positives must mark some points and leave others, but all 3 are negative; pass both kinds in one call",
    ),
    "no negatives": (
        lambda: metrics.fpr_at_recall(SCORES, MASK | ~MASK),
        "positives must mark some points and leave others, but all 3 are positive",
    ),
    "scores not finite": (
        lambda: metrics.aupr(NAN, MASK),
        "scores must be finite, but 2 of 3 values are nan or infinite",
    ),
    "recall zero": (
        lambda: metrics.fpr_at_recall(SCORES, MASK, 0.0),
        "recall must be above 0 and at most 1, but is 0.0; write 0.95 for 95 %",
    ),
    "coverage above one": (
        lambda: metrics.error_at_coverage(SCORES, MASK, 1.5),
        "coverage must be above 0 and at most 1, but is 1.5",
    ),
    "no points to select": (
        lambda: metrics.aurc(SCORES[:0], MASK[:0]),
        "uncertainty must hold at least one value, but has the shape (0,)",
    ),
    "no out-of-distribution points": (
        lambda: metrics.error_versus_uncertainty(SCORES, MASK, SCORES[:0]),
        "ood_uncertainty must hold at least one value, but has the shape (0,)",
    ),
    "log density for uncertainty": (
        lambda: metrics.error_versus_uncertainty(SCORES, MASK, -SCORES),
        "uncertainties must be non-negative with a positive maximum to be divided by it, but they range from -0.3 to",
    ),
    "no uncertainty anywhere": (
        lambda: metrics.error_versus_uncertainty(0 * SCORES, MASK, 0 * SCORES),
        "but they range from 0 to 0; pass a std, an entropy or a mutual information",
    ),
    "loss for errors": (
        lambda: metrics.error_versus_uncertainty(SCORES, SCORES, SCORES),
        "errors must be a boolean mask, but has dtype torch.float32",
    ),
    "one threshold": (
        lambda: metrics.error_versus_uncertainty(SCORES, MASK, SCORES, num_thresholds=1),
        "num_thresholds must be at least 2, but is 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_scored_is_refused(case, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, whose shapes nobody else checks
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
