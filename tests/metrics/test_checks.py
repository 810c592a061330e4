"""Arguments that cannot be scored are rejected with an error that names them."""

import math
import re

import jaxtyping
import pytest
import torch

from degp import metrics
from degp.metrics.checks import working_device

COLUMN = torch.ones(3, 1)
HALVES = torch.full((3, 2), 0.5)
LABELS = torch.tensor([0, 1, 1])
SCORES = torch.tensor([0.1, 0.2, 0.3])
MASK = torch.tensor([True, False, True])
NAN = torch.tensor([0.1, math.nan, math.inf])

INVALID = {
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
        "labels must lie in 0..1, one per column of probabilities, but one of them is 2; renumber the classes",
    ),
    "label negative": (lambda: metrics.ece(HALVES, LABELS - 1), "labels must lie in 0..1, one per column"),
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


@pytest.mark.parametrize("case", INVALID)
def test_invalid_arguments_are_rejected(case, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, without jaxtyping
    call, message = INVALID[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_only_mps_moves_to_the_cpu():
    assert working_device(torch.device("mps")) == torch.device("cpu")
    assert working_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
