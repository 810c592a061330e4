"""Units of a target: standardised after a transform, and back without loss."""

import pytest
import torch
from torch.testing import assert_close

from degp import LowRankGaussian, RegressionPredictive
from degp.tabular.units import Units, candidate_transforms
from degp.transforms import Identity, Log
from tests.fixtures import normal

TRANSFORMS = [Identity(), Log()]
each = pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.name)


def prices(rows=20):
    return (3 + 0.8 * normal(rows, 1)).exp()


@each
def test_transformed_targets_have_mean_zero_and_variance_one(transform):
    units = Units.fit(transform, prices())
    z = units.apply(prices())
    assert_close(z.mean(), torch.tensor(0.0).double())
    assert_close(z.var(correction=0), torch.tensor(1.0).double())


@each
def test_a_weight_counts_how_often_a_row_occurs(transform):
    y = prices(3)
    weights = torch.tensor([2.0, 1.0, 1.0]).double()
    repeated = Units.fit(transform, y[[0, 0, 1, 2]])
    assert_close(Units.fit(transform, y, weights).scaling.mean, repeated.scaling.mean)


@each
def test_the_slope_is_the_derivative_of_the_target(transform):
    units, y = Units.fit(transform, prices()), prices()
    z = units.apply(y)
    step = 1e-6
    ends = [transform.inverse(units.scaling.undo(z + shift)) for shift in (-step, step)]
    assert_close(units.slope(y), (ends[1] - ends[0]) / (2 * step), rtol=1e-6, atol=0)
    assert_close(units.log_slope(z), units.slope(y).log()[:, 0])


@each
def test_the_density_of_the_target_is_that_of_z_over_the_slope(transform):
    units, y = Units.fit(transform, prices(4)), prices(4)
    served = RegressionPredictive(LowRankGaussian(normal(4, 1), normal(2, 4, 1), 0.1), torch.full((4, 1), 0.3).double())
    z = units.apply(y)
    assert_close(units.predictive(served).log_prob(y), served.log_prob(z) - units.log_slope(z))


def test_only_a_single_positive_target_that_varies_may_have_a_log():
    y = prices()
    assert candidate_transforms(y) == (Identity(), Log())
    alone = [
        torch.cat([y, torch.zeros(1, 1)]),
        -y,
        torch.cat([y, y], 1),
        1990 + 30 * torch.rand(20, 1).double(),
    ]
    assert all(candidate_transforms(targets) == (Identity(),) for targets in alone)


@pytest.mark.parametrize("wrong", [0.0, -2.0])
def test_a_new_target_without_a_log_is_rejected(wrong):
    with pytest.raises(ValueError, match=f"targets must be positive, .* but one is {wrong:g}; leave it out"):
        Units.fit(Log(), prices()).apply(torch.tensor([[1.0], [wrong]]).double())


@each
def test_the_crps_is_that_of_the_target_in_its_own_units(transform):
    y = prices()
    units = Units.fit(transform, y)
    z, mean = units.apply(y), torch.full_like(y, 0.3)
    own = transform.crps(units.scaling.undo(mean), (0.5 * units.scaling.undo_std(torch.ones_like(y))).square(), y)
    assert units.crps(mean, torch.full_like(y, 0.25), z) == pytest.approx(own)
