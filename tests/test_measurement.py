"""Measurement points are uniform over the given region, and `count` of them."""

import pytest
import torch
from torch.testing import assert_close

from degp import BatchRegion, UniformBox, no_points


def test_points_are_uniform_over_the_box(generator):
    low, high = torch.tensor([-1.0, 2.0]), torch.tensor([1.0, 2.5])
    points = UniformBox(low, high, 100_000)(torch.zeros(3, 2), generator=generator)
    assert ((low <= points) & (points <= high)).all()
    assert_close(points.mean(0), (low + high) / 2, rtol=0, atol=0.01)
    assert_close(points.std(0), (high - low) / 12**0.5, rtol=0.01, atol=0)
    assert abs(torch.corrcoef(points.T)[0, 1]) < 0.02


@pytest.mark.parametrize("shape", [(2,), (3, 4, 4)])
def test_points_fill_the_bounding_box_of_the_data(shape, generator):
    inputs = torch.randn(20, *shape, generator=generator)
    for points in (
        UniformBox.around(inputs, 2000)(inputs[:2], generator=generator),
        BatchRegion(2000)(inputs, generator=generator),
    ):
        assert_close(points.amin(0), inputs.amin(0), rtol=0, atol=0.05)
        assert_close(points.amax(0), inputs.amax(0), rtol=0, atol=0.05)


def test_no_points_are_none():
    assert len(no_points(torch.zeros(3, 2))) == 0


def test_a_box_with_low_above_high_is_refused():
    with pytest.raises(ValueError, match=r"a box needs low ≤ high in every feature, but low is 1.0 and high 0.0"):
        UniformBox(1.0, 0.0, 5)


@pytest.mark.parametrize("make", [BatchRegion, lambda count: UniformBox(0.0, 1.0, count)])
def test_count_must_be_positive(make):
    with pytest.raises(ValueError, match="must be at least 1, but it is 0; use no_points"):
        make(0)
