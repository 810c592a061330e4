"""Targets for heads: which are classes, which are regressed, and what is said where that is in doubt."""

import warnings

import pytest
import torch
from torch.nn.functional import one_hot
from torch.testing import assert_close

from degp import Batch
from degp.attached.targets import Targets, checked_targets
from tests.fixtures import normal

LABELS = torch.arange(12) % 3
ROWS = one_hot(LABELS)

FORMS = {
    "labels": LABELS,
    "column": LABELS[:, None],
    "real": LABELS.float(),
    "real column": LABELS[:, None].double(),
    "one-hot": ROWS,
    "real one-hot": ROWS.float(),
    "boolean one-hot": ROWS.bool(),
}


@pytest.mark.parametrize("targets", FORMS.values(), ids=FORMS.keys())
def test_labels_in_any_form_are_classes_where_their_number_is_given(targets):
    labels, outputs = checked_targets(targets, 1, 3)
    assert outputs == 3
    assert_close(labels, LABELS)


def test_binary_labels_of_a_single_output_are_two_classes():
    truth = LABELS > 0
    for targets in (truth, truth.long(), truth[:, None]):
        assert checked_targets(targets, 1, None)[1] == 2
    assert_close(checked_targets(truth[:, None].float(), 1, 2)[0], truth.long())


DOUBTFUL = {
    "binary": (LABELS.clamp(max=1).float(), 1, "all of these are 0 or 1, .* 1 outputs; pass classes=2"),
    "one-hot": (ROWS.float(), 3, "all of these are 0 or 1, .*; pass classes=3 if they are labels or one-hot rows"),
    "whole": (LABELS.float(), 3, "are whole numbers, and the network has 3 outputs; pass classes=3"),
}


@pytest.mark.parametrize("targets, outputs, message", DOUBTFUL.values(), ids=DOUBTFUL.keys())
def test_real_targets_that_look_like_labels_are_pointed_out(targets, outputs, message):
    with pytest.warns(UserWarning, match=message):
        found, _ = checked_targets(targets, outputs, None)
    assert found.is_floating_point()


@pytest.mark.parametrize("targets", [normal(12, 3), LABELS.float()[:, None], 2 * ROWS.float()])
def test_other_real_targets_are_regressed_silently(targets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, outputs = checked_targets(targets, targets.shape[1], None)
    assert_close(found, targets)
    assert outputs == targets.shape[1]


@pytest.mark.parametrize("targets", [normal(12), ROWS.float() / 2 + 0.1, normal(12, 3)])
def test_real_targets_are_no_labels(targets):
    with pytest.raises(ValueError, match="classes=3 needs whole-number labels or one-hot rows, but targets are torch"):
        checked_targets(targets, 3, 3)


@pytest.mark.parametrize("unit", [1e-15, 1e15])
def test_small_and_large_targets_have_units_of_their_own(unit):
    values = normal(12, 2, dtype=torch.float32)
    known = Targets.of(Batch(values, values * unit), 2, None)
    assert_close(known.real, Targets.of(Batch(values, values), 2, None).real, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-30, 1e-20, 1e25])
def test_targets_whose_variance_is_no_number_are_refused(unit):
    values = normal(12, 2, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"between 1e-16 and 2e\+16, .* that of target 1 is .*; give it another unit"):
        Targets.of(Batch(values, values * torch.tensor([1.0, unit])), 2, None)
    Targets.of(Batch(values.double(), values.double() * unit), 2, None)
