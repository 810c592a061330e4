"""A batch knows its population and keeps its dtypes; a loss names its terms that are not finite."""

import re

import jaxtyping
import numpy as np
import pytest
import torch

from degp import Batch, Loss
from degp.typing import joined


def test_a_part_of_a_batch_has_the_same_population():
    batch = Batch(torch.arange(6)[:, None], torch.arange(6))
    part = batch[torch.tensor([4, 1])][:1]
    assert (len(batch), batch.population, len(part), part.population) == (6, 6, 1, 6)
    assert part.inputs.item() == part.targets.item() == 4
    assert Batch(torch.zeros(2, 1), torch.zeros(2), population=50).to(dtype=torch.float64).population == 50


def test_only_real_numbers_change_their_precision():
    batch = Batch(torch.zeros(2, 1), torch.tensor([0, 1])).to(dtype=torch.float64, device="cpu")
    assert (batch.inputs.dtype, batch.targets.dtype) == (torch.float64, torch.int64)


@pytest.mark.parametrize("name", ["inputs", "targets", "weights"])
def test_arrays_are_refused(name, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its own message comes first
    tensors = {"inputs": torch.zeros(2, 1), "targets": torch.zeros(2, 1)}
    message = "must be tensors, .*a ndarray; .*degp.data.as_batch"
    with pytest.raises(TypeError, match=message):
        Batch(**tensors | {name: np.zeros((2, 1))})


def test_a_single_target_is_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its own message comes first
    with pytest.raises(ValueError, match="there are 2 rows of inputs and a single number instead of targets"):
        Batch(torch.zeros(2, 1), torch.tensor(0.5))


def test_weights_stay_with_their_points():
    batch = Batch(torch.arange(3)[:, None], torch.arange(3), weights=torch.tensor([0.5, 1.0, 1.5]))
    part = batch[torch.tensor([2, 0])].to(dtype=torch.float64, device="cpu")
    assert part.weights.dtype == torch.float64 and part.weights.tolist() == [1.5, 0.5] and part.population == 3
    assert batch[1:].weights.tolist() == [1.0, 1.5]
    assert batch.weigh(torch.tensor([[1.0, 2.0, 4.0]])).tolist() == [[0.5, 2.0, 6.0]]


def test_joined_points_keep_their_order_and_their_weights():
    def batch(start, stop, weighted=True):
        rows = torch.arange(start, stop)
        return Batch({"x": rows[:, None], "y": (rows,)}, rows, weights=rows.float() if weighted else None)

    both = joined(batch(0, 2), batch(2, 5))
    assert both.inputs["x"][:, 0].tolist() == both.inputs["y"][0].tolist() == both.targets.tolist() == [0, 1, 2, 3, 4]
    assert both.weights.tolist() == [0, 1, 2, 3, 4] and both.population == 5
    assert joined(batch(0, 2), batch(2, 5, weighted=False)).weights.tolist() == [0, 1, 1, 1, 1]
    assert joined(batch(0, 2, weighted=False), batch(2, 5, weighted=False)).weights is None


def test_a_population_is_positive():
    with pytest.raises(ValueError, match="must be positive, but it is -5; leave it out"):
        Batch(torch.zeros(2, 1), torch.zeros(2), population=-5)


@pytest.mark.parametrize("shape", [(2,), (3, 1)])
def test_there_is_one_weight_per_point(shape, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its own message comes first
    message = rf"one weight per point, \(3,\), but the shape of the weights is {re.escape(str(shape))}; check how"
    with pytest.raises(ValueError, match=message):
        Batch(torch.zeros(3, 1), torch.zeros(3), weights=torch.ones(shape))


def test_terms_that_are_not_finite_are_named():
    terms = {"data": torch.tensor(1.0), "kl": torch.tensor(torch.nan)}
    assert Loss(torch.tensor(torch.inf), terms).non_finite() == ["kl", "total"]
    assert Loss(torch.tensor(0.0), {"data": torch.tensor(0.0)}).non_finite() == []
