"""A fit of a table: validation rows calibrate it, and all rows are trained on."""

import math

import pytest
import torch

from degp.calibration import calibrate
from degp.methods import Kind
from degp.priors.evidence import most_likely_scales
from degp.tabular import fitting
from degp.tabular.fitting import Budget, TableConfig, fit_table
from degp.typing import Batch
from tests.fixtures import normal, seeded


def rows():
    inputs = normal(80, 2, dtype=torch.float32)
    data = Batch(inputs, torch.sin(3 * inputs[:, :1]) + 0.3 * normal(80, 1, seed=1, dtype=torch.float32))
    return Batch(data.inputs[:60], data.targets[:60]), Batch(data.inputs[60:], data.targets[60:])


@pytest.mark.parametrize("method", Kind)
def test_the_noise_of_a_fit_that_ended_early_is_calibrated(method, monkeypatch):
    """After one epoch the errors exceed the noise variance, and a second calibration has nothing left to change."""
    train, validation = rows()
    config = TableConfig(method=method, hidden_layers=(8,), members=3, measurement_points=4)
    scales = most_likely_scales(train.inputs, train.targets, 1, generator=seeded())
    found = []

    def calibrate_twice(own, outputs, targets, weights):
        original(own, outputs, targets, weights)
        found.append(calibrate(own, outputs, targets))

    original = fitting.calibrate_cautiously
    monkeypatch.setattr(fitting, "calibrate_cautiously", calibrate_twice)
    fit_table(train, validation, None, config, scales, Budget(1), generator=seeded(), progress=False)
    assert found[0] == pytest.approx(1, abs=1e-3)


def test_the_last_steps_are_on_all_rows_and_leave_the_noise(monkeypatch):
    train, validation = rows()
    config = TableConfig(hidden_layers=(8,), members=3, measurement_points=4)
    scales = most_likely_scales(train.inputs, train.targets, 1, generator=seeded())
    seen = []

    def observed(ensemble, data, method, plan, **options):
        seen.append((len(data), plan.epochs, float(method.likelihood.variance)))
        return original(ensemble, data, method, plan, **options)

    original = fitting.fit
    monkeypatch.setattr(fitting, "fit", observed)
    fitted = fit_table(train, validation, None, config, scales, Budget(500), generator=seeded(), progress=False)
    (first, epochs, _), (last, last_epochs, noise) = seen
    assert (first, epochs, last, last_epochs) == (60, 20, 80, 4)
    assert float(fitted.method.likelihood.variance) == noise


def test_without_validation_rows_there_is_one_phase():
    train, validation = rows()
    config = TableConfig(hidden_layers=(8,), members=3, measurement_points=4)
    scales = most_likely_scales(train.inputs, train.targets, 1, generator=seeded())
    fitted = fit_table(train, validation[:0], None, config, scales, Budget(50), generator=seeded(), progress=False)
    assert fitted.held_out is None and math.isnan(fitted.validation_nll)
    assert [record["step"] for record in fitted.history.records] == [25, 50]
