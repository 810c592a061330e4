"""A rule for early stopping rejects settings that stop every run."""

import pytest

from degp.training import EarlyStopping


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"patience": 0}, "patience counts epochs and must be at least 1, but it is 0"),
        ({"min_delta": -0.1}, "min_delta is an improvement and must not be negative, but it is -0.1"),
    ],
)
def test_rules_that_stop_every_run_are_rejected(settings, message):
    with pytest.raises(ValueError, match=message):
        EarlyStopping(**settings)
