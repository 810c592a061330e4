"""Standardised columns have mean 0 and standard deviation 1, and every transformation can be undone."""

import json
import math
import re

import pytest
import torch
from torch.testing import assert_close

from degp.data import Standardiser


def test_standardised_rows_have_mean_0_and_std_1(generator):
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64) * torch.tensor([1e-3, 1, 1e6]) + 5
    z = Standardiser.fit(x).apply(x)
    assert_close(z.mean(0), torch.zeros(3, dtype=z.dtype))
    assert_close(z.std(0, correction=0), torch.ones(3, dtype=z.dtype))


def test_constant_features_become_0_and_are_restored():
    x = torch.full((1000, 1), 0.1)  # a sum of 0.1s rounds, so that its std comes out as 1e-17 and not as 0
    scale = Standardiser.fit(x)
    assert scale.std == (1,)
    assert_close(scale.apply(x), torch.zeros_like(x))
    assert_close(scale.undo(scale.apply(x)), x)


def test_a_group_of_features_has_variance_1_and_its_categories_lie_equally_far_apart():
    x = torch.eye(4, dtype=torch.float64)[[0] * 12 + [1] * 5 + [2] * 2]  # the fourth category is not among the rows
    rows = torch.cat([torch.linspace(0, 9, 19, dtype=torch.float64)[:, None], x], 1)
    scale = Standardiser.fit(rows).shared(rows, (0, 1, 1, 1, 1))
    z = scale.apply(rows)
    assert_close(z.var(0, correction=0)[1:].sum(), torch.tensor(1.0, dtype=z.dtype))
    assert scale.std[0] == Standardiser.fit(rows).std[0]
    distances = torch.pdist(scale.apply(torch.cat([torch.zeros(4, 1), torch.eye(4)], 1).double()))
    assert_close(distances, distances[:1].expand(6))


def test_features_in_groups_of_their_own_keep_their_scale(generator):
    x = torch.randn(20, 3, generator=generator)
    assert Standardiser.fit(x).shared(x, (0, 1, 2)) == Standardiser.fit(x)


def test_new_rows_are_scaled_by_the_fitted_rows():
    scale = Standardiser.fit(torch.tensor([[0.0], [2.0]]))
    assert scale == Standardiser((1.0,), (1.0,))
    assert_close(scale.apply(torch.tensor([[11.0]])), torch.tensor([[10.0]]))


@pytest.mark.parametrize("shape", [(7, 2), (3, 7, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_undo_is_the_inverse_of_apply(shape, dtype, generator):
    scale = Standardiser((10.0, -3.0), (0.1, 20.0))
    x = torch.randn(*shape, generator=generator, dtype=dtype)
    assert_close(scale.undo(scale.apply(x)), x, rtol=1e-5, atol=1e-5)
    assert_close(scale.apply(scale.undo(x)), x, rtol=1e-4, atol=1e-4)
    assert_close(scale.undo_std(x), scale.undo(x) - scale.undo(torch.zeros_like(x)), rtol=1e-5, atol=1e-5)


def test_standardisers_round_trip_through_json(generator):
    scale = Standardiser.fit(torch.randn(9, 4, generator=generator))
    assert Standardiser.from_json(json.loads(json.dumps(scale.to_json()))) == scale


def test_standardisers_reject_invalid_arguments():
    with pytest.raises(ValueError, match="1 of 2 rows have NaN"):
        Standardiser.fit(torch.tensor([[1.0], [math.nan]]))
    with pytest.raises(ValueError, match=r"the 1 features that were fitted, but the shape is \(2, 3\)"):
        Standardiser((0.0,), (1.0,)).apply(torch.ones(2, 3))
    with pytest.raises(ValueError, match="one positive std for each feature"):
        Standardiser((0.0,), (0.0,))


def test_a_weight_counts_how_often_its_row_occurs(generator):
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    counts = torch.tensor([0, 1, 2, 3, 1, 4])
    weighted, repeated = Standardiser.fit(x, counts.double()), Standardiser.fit(x.repeat_interleave(counts, 0))
    assert_close(weighted.mean, repeated.mean)
    assert_close(weighted.std, repeated.std)


def test_a_feature_that_varies_in_absent_rows_only_is_constant():
    assert Standardiser.fit(torch.tensor([[5.0], [2.0], [2.0]]), torch.tensor([0.0, 1.0, 3.0])).std == (1,)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_a_feature_whose_variance_is_beyond_float64_is_refused(size):
    rows = torch.tensor([[1.0, -size], [2.0, size]], dtype=torch.float64)
    with pytest.raises(ValueError, match=re.escape(f"those of column 1 lie between {-size:g} and {size:g}; give")):
        Standardiser.fit(rows)
