"""The rule that chooses DE-GP's settings: harmless on clean validation images, best under shift, up to ties."""

import pytest

from experiments.protocols.shift.choice import HARMLESS, TIE, preferred
from experiments.protocols.shift.runs import run_by_name


def record(name, clean, shifted):
    return {**run_by_name(name, "resnet20", 20, 0).facts, "nll_validation": clean, "nll_cbar": shifted}


BASELINE = record("rde", 0.29, 1.2)
MILD = record("degp-a0.003-p8-context", 0.28, 1.1)
STRONG = record("degp-a0.01-p8-context-alone", 0.29 + 0.9 * HARMLESS, 1.0)
HARMFUL = record("degp-a0.1-p8-context-alone", 0.29 + 1.1 * HARMLESS, 0.9)


def test_the_lowest_nll_under_shift_is_preferred_among_those_that_do_no_harm():
    assert preferred([BASELINE, MILD, STRONG, HARMFUL]) == STRONG
    assert preferred([BASELINE, MILD]) == MILD


def test_clean_images_decide_between_settings_that_are_tied_under_shift():
    near, far = (record("degp-a0.002-p8-context", 0.27, (1 + share * TIE) * 1.1) for share in (0.9, 1.1))
    assert preferred([BASELINE, MILD, near]) == near
    assert preferred([BASELINE, MILD, far]) == MILD


def test_other_methods_and_other_augmentation_are_no_candidates():
    others = [
        record("rde-context-exposed", 0.28, 0.8),
        record("chosen-augmix", 0.28, 0.7),
        {**record("degp", 0.28, 0.6), "nll_cbar": None},
    ]
    assert preferred([BASELINE, MILD, *others]) == MILD


def test_without_a_baseline_or_a_candidate_there_is_no_choice():
    with pytest.raises(ValueError, match="the rule compares with rDE, but it has no record"):
        preferred([MILD])
    with pytest.raises(ValueError, match="no setting of DE-GP has an NLL on clean validation images"):
        preferred([BASELINE, HARMFUL])
