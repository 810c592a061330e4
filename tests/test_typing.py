"""A batch knows its population and keeps its dtypes; a loss names its terms that are not finite."""

import jaxtyping
import numpy as np
import pytest
import torch

from degp import Batch, Loss


def test_a_part_of_a_batch_has_the_same_population():
    batch = Batch(torch.arange(6)[:, None], torch.arange(6))
    part = batch[torch.tensor([4, 1])][:1]
    assert (len(batch), batch.population, len(part), part.population) == (6, 6, 1, 6)
    assert part.inputs.item() == part.targets.item() == 4
    assert Batch(torch.zeros(2, 1), torch.zeros(2), population=50).to(dtype=torch.float64).population == 50


def test_only_real_numbers_change_their_precision():
    batch = Batch(torch.zeros(2, 1), torch.tensor([0, 1])).to(dtype=torch.float64, device="cpu")
    assert (batch.inputs.dtype, batch.targets.dtype) == (torch.float64, torch.int64)


@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_arrays_are_refused(name, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its own message comes first
    tensors = {"inputs": torch.zeros(2, 1), "targets": torch.zeros(2, 1)}
    message = "must be tensors, .*a ndarray; use degp.data.as_batch"
    with pytest.raises(TypeError, match=message):
        Batch(**tensors | {name: np.zeros((2, 1))})


def test_terms_that_are_not_finite_are_named():
    terms = {"data": torch.tensor(1.0), "kl": torch.tensor(torch.nan)}
    assert Loss(torch.tensor(torch.inf), terms).non_finite() == ["kl", "total"]
    assert Loss(torch.tensor(0.0), {"data": torch.tensor(0.0)}).non_finite() == []
