"""Short versions of the campaigns, which repeat each of these cases thousands of times."""

import random

import pytest

from campaigns import bits, fuzz, kill, soak
from campaigns.targets import TARGETS

pytestmark = pytest.mark.slow

pytest.importorskip("scipy")


@pytest.mark.slow
def test_a_killed_run_is_resumed_bit_for_bit(monkeypatch):
    monkeypatch.setattr(kill, "EPOCHS", 12)
    outcome = kill.campaign(3)
    assert (outcome.kills, outcome.unequal) == (3, 0)


def test_a_damaged_checkpoint_is_rejected_or_loads_what_was_saved():
    outcomes = {outcome for _, _, outcome in bits.campaign(stride=331)}
    assert "rejected" in outcomes and "WRONG" not in outcomes


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_rejected_by_the_readers_own_errors(name):
    tally = fuzz.campaign(TARGETS[name], 60, seed=1)
    assert tally.faults == [] and tally.cases == 60 and tally.rejected


def test_another_exception_of_a_reader_is_a_fault(tmp_path):
    def broken(folder):
        raise IndexError("out of range")

    target = TARGETS["IDX"].__class__(TARGETS["IDX"].write, broken, (ValueError,))
    assert len(fuzz.campaign(target, 3).faults) == 3


def test_damage_changes_most_files():
    content, rng = bytes(range(200)), random.Random(0)
    assert sum(fuzz.damaged(content, rng) == content for _ in range(200)) < 10


def test_repeated_use_leaves_no_open_files():
    first, last = (soak.campaign(0.0, warm_up=2)[-1] for _ in range(2))
    assert last[2] <= first[2]
