"""The campaigns in short: what they try thousands of times is tried a few times on every change."""

import random

import pytest

from campaigns import bits, fuzz, kill, soak
from campaigns.targets import TARGETS

pytest.importorskip("scipy")


def test_a_run_that_is_killed_ends_as_if_it_had_not_been():
    toll = kill.campaign(3)
    assert (toll.kills, toll.unequal) == (3, 0)


def test_a_checkpoint_damaged_anywhere_is_refused_or_what_was_saved():
    outcomes = {outcome for _, _, outcome in bits.campaign(stride=331)}
    assert "refused" in outcomes and "WRONG" not in outcomes


@pytest.mark.parametrize("name", TARGETS)
def test_broken_files_are_refused_in_the_readers_own_words(name):
    tally = fuzz.campaign(TARGETS[name], 60, seed=1)
    assert tally.faults == [] and tally.cases == 60 and tally.refused


def test_a_reader_that_fails_in_other_words_is_a_fault(tmp_path):
    def broken(folder):
        raise IndexError("out of range")

    target = TARGETS["IDX"].__class__(TARGETS["IDX"].write, broken, (ValueError,))
    assert len(fuzz.campaign(target, 3).faults) == 3


def test_damage_is_damage():
    content, dice = bytes(range(200)), random.Random(0)
    assert sum(fuzz.damaged(content, dice) == content for _ in range(200)) < 10


def test_use_leaves_no_open_files():
    first, last = (soak.campaign(0.0, warm_up=2)[-1] for _ in range(2))
    assert last[2] <= first[2]
