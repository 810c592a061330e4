"""Inputs in tuples and dictionaries: one count of points, rows taken and joined tensor by tensor."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Batch, Categorical, Ensemble, fit, methods, predict, priors
from degp.points import count_points, join_points, take_points, tensors_of
from tests.fixtures import normal, seeded

TOKENS = torch.arange(24).reshape(6, 4) % 5
MASK = TOKENS != 0
TREE = {"tokens": TOKENS, "rest": (MASK, [normal(6, 2)])}


class Masked(nn.Module):
    """A classifier of token sequences with an attention mask."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 2)

    def forward(self, batch):
        weights = batch["mask"].to(self.head.weight)[..., None]
        return self.head((self.embed(batch["tokens"]) * weights).sum(1) / weights.sum(1))


def test_rows_are_taken_from_every_tensor():
    part = take_points(TREE, torch.tensor([4, 1]))
    assert torch.equal(part["tokens"], TOKENS[[4, 1]]) and torch.equal(part["rest"][0], MASK[[4, 1]])
    assert count_points(part) == 2 and count_points(TREE) == 6
    joined = join_points([take_points(TREE, slice(2)), take_points(TREE, slice(2, None))])
    assert all(torch.equal(a, b) for a, b in zip(tensors_of(joined), tensors_of(TREE), strict=True))


def test_tensors_must_agree_on_the_points():
    with pytest.raises(ValueError, match=r"must have one row per point, but their shapes are \(6, 4\), \(5, 4\)"):
        Batch((TOKENS, MASK[:5]), torch.zeros(6, 1))
    with pytest.raises(ValueError, match=r"one row per point, but their shapes are \(\)"):
        Batch(torch.tensor(1.0), torch.zeros(1, 1))
    with pytest.raises(TypeError, match=r"must be tensors, one or several in tuples .*, but there is a NoneType"):
        count_points(None)
    with pytest.raises(ValueError, match="there must be inputs to join, but there are none"):
        join_points([])
    with pytest.raises(TypeError, match=r"must be tensors, one or several in tuples .*, but there is a str"):
        Batch({"tokens": TOKENS, "name": "a"}, torch.zeros(6, 1))


def test_batches_of_dictionaries_move_and_index():
    data = Batch({"tokens": TOKENS, "x": normal(6, 2)}, torch.zeros(6).long(), 100)
    part = data[torch.tensor([3])].to(dtype=torch.float16)
    assert part.population == 100 and len(part) == 1
    assert part.inputs["x"].dtype == torch.float16 and part.inputs["tokens"].dtype == torch.int64


@pytest.mark.parametrize("method", ["de", "degp"])
def test_networks_train_and_predict_on_dictionaries(method):
    torch.manual_seed(0)
    data = Batch({"tokens": TOKENS, "mask": MASK}, torch.arange(6) % 2)
    kernel = priors.KernelPrior(lambda a, b: 1.0 + (a["tokens"][:, None] == b["tokens"]).double().sum(-1))
    chosen = methods.de(Categorical()) if method == "de" else methods.degp(Categorical(), kernel)
    ensemble = Ensemble(Masked, 3)
    history = fit(ensemble, data, chosen, epochs=30, batch_size=3, generator=seeded(), progress=False)
    assert history.last["loss"] < history.records[0]["loss"]
    result = predict(ensemble, data.inputs, chosen, batch_size=4, generator=seeded()).probabilities
    alone = predict(ensemble, data.inputs, chosen, generator=seeded()).probabilities
    assert_close(result, alone)


def test_the_analytic_prior_says_what_it_needs():
    with pytest.raises(TypeError, match=r"NNGP is a kernel of numbers .* but the inputs are a dict; pass KernelPrior"):
        methods.degp(Categorical(), priors.NNGP(1)).prepare({"tokens": TOKENS})
