"""Out-of-distribution scores agree with scikit-learn, and with the curve of error against uncertainty."""

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from degp.vision import error_curve, ood_scores
from tests.vision.cases import CLASSES, predictive


def test_detection_agrees_with_sklearn_with_ood_points_positive():
    test, ood = predictive(60, 0), predictive(50, 1)
    labels = torch.randint(CLASSES, (60,), generator=torch.Generator().manual_seed(2))
    scores = ood_scores(test, labels, ood)
    is_ood = [0] * 60 + [1] * 50
    uncertainties = {
        "mi": torch.cat([test.epistemic, ood.epistemic]),
        "entropy": torch.cat([test.total, ood.total]),
        "maxprob": 1 - torch.cat([test.probabilities, ood.probabilities]).amax(-1),
    }
    for kind, values in uncertainties.items():
        assert scores[f"auroc_{kind}"] == pytest.approx(roc_auc_score(is_ood, values))
        assert scores[f"aupr_{kind}"] == pytest.approx(average_precision_score(is_ood, values))
        false, true, _ = roc_curve(is_ood, values, drop_intermediate=False)
        assert scores[f"fpr95_{kind}"] == pytest.approx(false[(true >= 0.95).argmax()])


def test_the_error_at_a_threshold_lies_on_the_curve():
    test, ood = predictive(60, 0), predictive(50, 1)
    labels = torch.randint(CLASSES, (60,), generator=torch.Generator().manual_seed(2))
    scores, curve = ood_scores(test, labels, ood), error_curve(test, labels, ood)
    for percent in (5, 10, 20):
        index = int((curve.threshold - percent / 100).abs().argmin())
        assert scores[f"error_mi_{percent}"] == pytest.approx(float(curve.error[index]), nan_ok=True)
    everything = ood_scores(test, labels, ood, coverages=[1.0])["error_coverage_100"]
    wrong = int((test.labels != labels).sum()) + 50
    assert everything == pytest.approx(wrong / 110)
