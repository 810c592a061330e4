"""Observations are scaled to the unit cube of the search region, and their outcomes are standardised."""

import torch
from torch.testing import assert_close

from degp.decisions.botorch.observations import Observations

X = torch.tensor([[1.0, 7.0], [3.0, 7.0], [5.0, 7.0]], dtype=torch.float64)
Y = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)


def transformed(bounds=None):
    return Observations.transformed(X, Y, bounds, None, None)


def test_bounds_become_the_unit_cube():
    bounds = torch.tensor([[0.0, 5.0], [10.0, 9.0]], dtype=torch.float64)
    assert_close(transformed(bounds).data.inputs, (X - bounds[0]) / (bounds[1] - bounds[0]))


def test_without_bounds_the_data_span_the_unit_cube_and_a_constant_feature_has_width_one():
    expected = torch.tensor([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert_close(transformed().data.inputs, expected)


def test_outcomes_are_standardised_and_restored():
    observations = transformed()
    y = observations.data.targets
    assert_close(torch.stack([y.mean(), y.std()]), torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert_close(observations.outcome_transform.untransform(y)[0], Y)
