"""Hold-out rows, folds and subsets partition the data, as decided by the generator or the seed alone."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from degp.data import hold_out_rows, kfold, subset
from degp.typing import Batch
from tests.fixtures import normal, seeded


@given(
    kinds=st.lists(st.integers(0, 12), min_size=2, max_size=40),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 50),
)
def test_hold_out_partitions_the_rows_and_keeps_duplicates_together(kinds, fraction, seed):
    table = torch.tensor(kinds, dtype=torch.float32)[:, None] * torch.tensor([1.0, -0.3]) + 0.1
    data = Batch(table, torch.arange(len(kinds)))
    train, held_out = hold_out_rows(data, fraction, generator=torch.Generator().manual_seed(seed))
    N, counts = len(kinds), Counter(kinds)
    assert min(len(train), len(held_out)) > 0
    assert sorted([*train.targets.tolist(), *held_out.targets.tolist()]) == list(range(N))
    assert torch.equal(table[train.targets], train.inputs) and torch.equal(table[held_out.targets], held_out.inputs)
    expected = min(max(round(fraction * N), 1), N - 1)
    if len(counts) > N / 2:
        ours, theirs = ({kinds[row] for row in part.targets.tolist()} for part in (train, held_out))
        assert not ours & theirs
        assert abs(len(held_out) - expected) <= max(counts.values())
    else:
        assert len(held_out) == expected


def test_rows_are_held_out_at_random():
    data = Batch(torch.randn(200, 3), torch.arange(200))
    parts = [hold_out_rows(data, 0.2, generator=torch.Generator().manual_seed(seed))[1].targets for seed in (0, 0, 1)]
    assert torch.equal(parts[0], parts[1]) and not torch.equal(parts[0].sort().values, parts[2].sort().values)
    counts = torch.zeros(200)
    for seed in range(300):
        counts[hold_out_rows(data, 0.2, generator=torch.Generator().manual_seed(seed))[1].targets] += 1
    assert counts.mean() == 60 and 20 < counts.min() and counts.max() < 100  # binomial, six standard deviations


@given(num_rows=st.integers(2, 60), folds=st.integers(2, 7), seed=st.integers(0, 2**32))
def test_folds_test_every_row_once_and_train_on_the_others(num_rows, folds, seed):
    folds = min(folds, num_rows)
    splits = kfold(num_rows, folds, seed=seed)
    tested = torch.cat([test for _, test in splits])
    assert tested.sort().values.tolist() == list(range(num_rows))
    for train, test in splits:
        assert torch.cat([train, test]).sort().values.tolist() == list(range(num_rows))
        assert len(test) in (num_rows // folds, math.ceil(num_rows / folds))


def test_folds_are_contiguous_in_one_permutation_that_depends_on_the_seed():
    order = torch.cat([test for _, test in kfold(23, seed=3)])
    for i, (train, _) in enumerate(kfold(23, seed=3)):
        start, stop = [0, 5, 10, 15, 19][i], [5, 10, 15, 19, 23][i]
        assert_close(train, torch.cat([order[:start], order[stop:]]))
    assert not torch.equal(order, torch.cat([test for _, test in kfold(23, seed=4)]))


def test_folds_do_not_use_the_global_generator():
    before = torch.get_rng_state()
    kfold(10, seed=0)
    assert_close(torch.get_rng_state(), before)


@pytest.mark.parametrize("num_rows, folds", [(4, 5), (10, 1), (0, 2)])
def test_folds_need_enough_rows(num_rows, folds):
    with pytest.raises(ValueError, match=f"{num_rows} rows are to make {folds} folds"):
        kfold(num_rows, folds, seed=0)


def test_a_subset_is_its_own_population():
    whole = Batch(torch.arange(10.0)[:, None], torch.arange(10.0)[:, None])
    part = subset(whole, torch.tensor([7, 2, 4]))
    assert part.inputs.flatten().tolist() == [7, 2, 4]
    assert part.population == 3


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_validation_rows_are_independent_of_units(scale):
    table = normal(60, 3)
    table[30:40] = table[:10]  # duplicates
    parts = [
        hold_out_rows(Batch(inputs, torch.arange(60)), 0.2, generator=seeded())[1].targets
        for inputs in (table, table * torch.tensor([scale, 1, 1]))
    ]
    assert torch.equal(*parts)


def test_the_weights_of_a_subset_have_mean_one_and_the_same_ratios():
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    data = Batch(normal(4, 2), normal(4, 1), weights=weights)
    part = subset(data, torch.tensor([3, 0]))
    assert part.population == 2
    assert_close(part.weights, torch.tensor([1.6, 0.4]))
    train, held_out = hold_out_rows(data, 0.5, generator=seeded())
    for rows in (train, held_out):
        original = weights[(data.inputs[None] == rows.inputs[:, None]).all(2).nonzero()[:, 1]]
        assert_close(rows.weights, original / original.mean())


def test_rows_of_images_and_of_several_inputs_can_be_held_out():
    """A row is a duplicate where all its tensors are."""
    images = normal(10, 3, 4, 4)[torch.arange(15) % 10]  # rows 10 to 14 are those from 0 to 4
    marks = torch.arange(15)
    for inputs, duplicates in ((images, True), ({"images": images, "marks": marks}, False)):
        held_out = {int(row) for row in hold_out_rows(Batch(inputs, marks), 0.4, generator=seeded())[1].targets}
        assert 4 <= len(held_out) <= 8
        assert all((row in held_out) == (row + 10 in held_out) for row in range(5)) == duplicates


@pytest.mark.parametrize("rows, fraction", [(1, 0.5), (4, 0.0), (4, 1.0), (4, math.nan)])
def test_rows_that_cannot_be_held_out_are_refused(rows, fraction):
    batch = Batch(torch.zeros(rows, 1), torch.zeros(rows, 1))
    with pytest.raises(ValueError, match=f"between 0 and 1, but there are {rows} and the fraction is {fraction}"):
        hold_out_rows(batch, fraction, generator=seeded())
