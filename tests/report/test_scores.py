"""The metrics of the report agree with scikit-learn, and are undefined where they say nothing."""

import math

import pytest
import torch
from sklearn.metrics import precision_recall_fscore_support, r2_score, roc_auc_score

from degp.report.scores import explained, roc_auc
from tests.report.cases import class_case, classification, normal_case, seeded


def test_roc_auc_of_two_classes_is_that_of_the_second():
    p = torch.rand(80, generator=seeded(), dtype=torch.float64)
    labels = (torch.rand(80, generator=seeded(1)) < p).long()
    assert roc_auc(torch.stack([1 - p, p], 1), labels) == pytest.approx(roc_auc_score(labels, p))


def test_roc_auc_of_more_classes_is_the_mean_of_each_against_the_rest():
    p, _, labels, _ = class_case(80)
    assert roc_auc(p, labels) == pytest.approx(roc_auc_score(labels, p, multi_class="ovr"))


def test_roc_auc_leaves_out_classes_without_rows():
    p, _, labels, _ = class_case(80)
    kept = labels != 2
    binary = [roc_auc_score(labels[kept] == c, p[kept, c]) for c in (0, 1)]
    assert roc_auc(p[kept], labels[kept]) == pytest.approx(sum(binary) / 2)
    assert math.isnan(roc_auc(p[labels == 0], labels[labels == 0]))


def test_explained_variance_is_r2():
    mean, _, _, targets = normal_case(50)
    assert explained(mean[:, None], targets[:, None]) == pytest.approx(r2_score(targets, mean))
    assert math.isnan(explained(mean[:, None], torch.ones(50, 1)))


def test_recall_and_precision_of_each_class():
    p, _, labels, names = class_case(120)
    precision, recall, _, rows = precision_recall_fscore_support(labels, p.argmax(1), labels=[0, 1, 2])
    table = classification(120)["per_class"]
    assert [entry["name"] for entry in table] == names
    for key, expected in (("precision", precision), ("recall", recall), ("rows", rows)):
        assert [entry[key] for entry in table] == pytest.approx(list(expected))
