"""What people train on becomes batches: pairs, dictionaries with labels, data sets and loaders."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from degp import Batch
from degp.data.batches import DatasetRows, as_points, batches_of, population_of
from tests.fixtures import normal

X, Y = normal(7, 3), torch.arange(7.0)
DATASET = TensorDataset(X, Y)


class Endless(IterableDataset):
    def __iter__(self):
        return iter([(X[0], Y[0])] * 5)


def test_items_become_batches():
    pair = as_points((X, Y), 50)
    assert torch.equal(pair.targets, Y[:, None]) and pair.population == 50
    labels = torch.arange(7)
    tokens = as_points({"ids": X, "mask": X > 0, "labels": labels})
    assert set(tokens.inputs) == {"ids", "mask"} and torch.equal(tokens.targets, labels)
    assert as_points(Batch(X, labels, 9)).population == 9
    assert as_points(Batch(X, labels, 9), 11).population == 11


@pytest.mark.parametrize(
    "item, found", [(X, "a Tensor"), ((X, Y, Y), "a tuple of 3"), ({"x": X}, "a dict of x")], ids=["x", "three", "dict"]
)
def test_other_items_are_refused(item, found):
    with pytest.raises(TypeError, match=f"must be a pair .*, but it is {found}; give the DataLoader a collate_fn"):
        as_points(item)


@pytest.mark.parametrize(
    "data",
    [
        Batch(X, Y[:, None]),
        DATASET,
        DataLoader(DATASET, 3),
        DataLoader(list(zip(X, Y, strict=True)), 3),
        [(X[:4], Y[:4]), (X[4:], Y[4:])],
    ],
    ids=["batch", "dataset", "loader", "loader of a list", "list"],
)
def test_all_points_come_in_order(data):
    batches = list(batches_of(data, batch_size=4))
    assert_close(torch.cat([batch.inputs for batch in batches]), X)
    assert_close(torch.cat([batch.targets for batch in batches]), Y[:, None])
    assert population_of(data) == 7


def test_rows_of_a_data_set():
    rows = DatasetRows(DATASET, 20, torch.device("cpu"))
    batch = rows[torch.tensor([5, 2])]
    assert_close(batch.inputs, X[[5, 2]])
    assert_close(rows[:2].targets, Y[:2, None])
    assert batch.population == 20 and len(rows) == 7


@pytest.mark.parametrize(
    "options, count",
    [
        ({"batch_size": 2, "sampler": SubsetRandomSampler([0, 2, 5])}, 3),
        ({"batch_size": 2, "sampler": SubsetRandomSampler(torch.tensor([0, 0, 5]))}, 2),
        ({"batch_size": 2, "sampler": range(4)}, 4),
        ({"batch_size": None, "sampler": [1, 2]}, 2),
        ({"batch_sampler": BatchSampler(SubsetRandomSampler([0, 2, 5]), 2, drop_last=False)}, 3),
        ({"batch_size": 2, "sampler": RandomSampler(DATASET, num_samples=3)}, 7),
        ({"batch_size": 2, "sampler": WeightedRandomSampler(torch.ones(7), 50)}, 7),
        ({"batch_size": 2, "drop_last": True}, 7),
    ],
    ids=["subset", "tensor", "range", "rows", "batches", "some at a time", "often", "drop_last"],
)
def test_the_population_of_a_loader_is_the_rows_that_it_draws(options, count):
    assert population_of(DataLoader(DATASET, **options)) == count


def test_a_forgotten_population_is_an_error():
    for data in (DataLoader(Endless(), 2), Endless(), (pair for pair in [(X, Y)])):
        with pytest.raises(ValueError, match=r"number of training points must be known, .*; pass population="):
            population_of(data)
    with pytest.raises(TypeError, match=r"data must be a degp.Batch, a DataLoader, .*, but they are a float; use"):
        population_of(1.0)
