"""Presets order what a fit costs, and steps grow with the square root of the rows."""

import pytest

from degp.tabular.presets import Preset


def test_presets_are_ordered():
    fast, default, best = Preset
    assert fast.members < default.members < best.members
    assert fast.steps(500) < default.steps(500) < best.steps(500)


@pytest.mark.parametrize("preset", Preset)
def test_four_times_the_rows_are_twice_the_steps_between_the_bounds(preset):
    assert preset.steps(8000) == pytest.approx(2 * preset.steps(2000), abs=1)
    assert preset.steps(10) == preset.steps(250) and preset.steps(10**6) == preset.steps(16_000)


def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match="'slow' is not a valid Preset"):
        Preset("slow")
