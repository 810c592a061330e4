"""A plan rejects settings that cannot train."""

import pytest

from degp.training import Plan


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"epochs": -1}, "epochs must not be negative, but it is -1"),
        ({"epochs": 1, "batch_size": 0}, "batch_size must be at least 1, but it is 0; None takes all data"),
        ({"epochs": 1, "batches_per_epoch": 0}, "batches_per_epoch must be at least 1, but it is 0"),
        ({"epochs": 1, "max_norm": 0.0}, "max_norm must be positive, but it is 0.0"),
        ({"epochs": 1, "max_seconds": -1.0}, "max_seconds must not be negative, but it is -1.0; None sets no limit"),
        ({"epochs": 1, "max_seconds": float("nan")}, "max_seconds must not be negative, but it is nan"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(ValueError, match=message):
        Plan(**settings)


def test_no_epochs_are_a_plan():
    assert Plan(0).epochs == 0
