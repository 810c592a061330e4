"""A fit of a table ends with the calibration of its noise on the validation rows."""

import pytest
import torch

from degp.calibration import calibrate
from degp.methods import Kind
from degp.prediction import evaluate
from degp.tabular.fitting import TableConfig, fit_table, scales_for
from degp.training import EarlyStopping, Plan
from degp.typing import Batch
from tests.fixtures import normal, seeded


@pytest.mark.parametrize("method", Kind)
def test_the_noise_of_a_fit_that_ended_early_is_calibrated(method):
    """After one epoch the errors exceed the noise variance, and a second calibration has nothing left to change."""
    inputs = normal(80, 2, dtype=torch.float32)
    data = Batch(inputs, torch.sin(3 * inputs[:, :1]) + 0.3 * normal(80, 1, seed=1, dtype=torch.float32))
    train, validation = data[:60], data[60:]
    config = TableConfig(method=method, hidden_layers=(8,), members=3, measurement_points=4)
    plan = Plan(1, 60, early_stopping=EarlyStopping("validation/nll"))
    scales = scales_for(train, None, config, generator=seeded())
    fitted = fit_table(train, validation, None, config, scales, plan, generator=seeded(), progress=False)
    outputs = evaluate(fitted.ensemble, validation.inputs)
    assert calibrate(fitted.method, outputs, validation.targets) == pytest.approx(1, abs=1e-3)
