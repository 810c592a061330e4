"""Classification metrics agree with scikit-learn, torchmetrics and scipy, and with values computed by hand."""

import math

import numpy as np
import pytest
import torch
import torchmetrics.functional.classification as torchmetrics
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn
from torch.testing import assert_close

from degp import metrics
from tests.metrics.cases import categorical_case, seeds


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


def test_nll_is_infinite_if_a_true_class_has_probability_zero():
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


def test_ece_puts_confidence_one_into_the_last_bin():
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


@pytest.mark.parametrize("num_bins", [4, 7, 10, 15, 20, 100])
def test_a_confidence_on_an_edge_belongs_to_the_upper_bin(num_bins):
    """The confidences 1/B, …, (B−1)/B, each in a bin of its own; a uniform rest keeps them the largest."""
    edges = torch.tensor([[b / num_bins] for b in range(1, num_bins)], dtype=torch.float64)
    rest = ((1 - edges) / num_bins).expand(-1, num_bins)
    curve = metrics.reliability_curve(torch.cat([edges, rest], -1), torch.zeros(len(edges), dtype=int), num_bins)
    assert curve.count.tolist() == [0] + [1] * (num_bins - 1)


def test_calibration_errors_put_an_edge_into_the_upper_bin():
    """0.3 (right) and 0.35 (wrong) share the bin [0.3, 0.4), where their gaps 0.7 and −0.35 partly cancel."""
    probabilities = torch.tensor([[0.3, 0.25, 0.25, 0.2], [0.35, 0.25, 0.2, 0.2]], dtype=torch.float64)
    assert metrics.ece(probabilities, torch.tensor([0, 1]), num_bins=10) == pytest.approx(0.35 / 2)
    pairs = torch.tensor([[0.3, 0.7], [0.35, 0.65]], dtype=torch.float64)  # 0.7 and 0.65 are in bins of their own
    expected = (0.35 / 2 + (0.7 + 0.35) / 2) / 2
    assert metrics.classwise_ece(pairs, torch.tensor([0, 1]), num_bins=10) == pytest.approx(expected)


def test_reliability_curve_adds_up_to_ece():
    probabilities, labels = categorical_case(6)
    curve = metrics.reliability_curve(probabilities, labels)
    gaps = (curve.accuracy - curve.confidence).abs() * curve.count / len(labels)
    assert metrics.ece(probabilities, labels) == pytest.approx(gaps.nansum().item())
