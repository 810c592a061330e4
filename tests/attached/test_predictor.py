"""Heads on a network that does not end with a linear layer, or is in half precision, as one folder and one graph."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Batch, Unpacked, attach
from degp.attached import Attached
from degp.graph import run_onnx
from tests.fixtures import normal, seeded

X, NEW = normal(40, 4, dtype=torch.float32), normal(9, 4, seed=1, dtype=torch.float32)
LABELS = (X[:, 0] > 0).long()
OPTIONS = {"members": 4, "width": 8, "steps": 2, "progress": False}


class Ending(nn.Module):
    """Returns class probabilities, under a name where that is wanted."""

    def __init__(self, name=None):
        super().__init__()
        self.body, self.head, self.name = nn.Linear(4, 8), nn.Linear(8, 2), name

    def forward(self, x):
        probabilities = self.head(self.body(x).tanh()).softmax(1)
        return probabilities if self.name is None else {self.name: probabilities}


def attached(network, dtype=torch.float32):
    torch.manual_seed(0)
    return attach(network, Batch(X.to(dtype), LABELS), generator=seeded(), **OPTIONS)


@pytest.mark.parametrize("make", [Ending, lambda: Unpacked(Ending("scores"), "scores")], ids=["tensor", "record"])
def test_a_network_that_ends_with_a_softmax_is_saved_too(make, tmp_path):
    predictor = attached(make())
    predictor.save(tmp_path / "model")
    loaded = Attached.load(tmp_path / "model", make())
    one, two = (each.predict(NEW, generator=seeded()).probabilities for each in (predictor, loaded))
    assert_close(one, two)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_heads_of_a_network_in_half_precision_are_single(dtype, tmp_path):
    network = Ending().to(dtype)
    predictor = attached(network, dtype)
    assert {p.dtype for p in predictor.ensemble.own_parameters()} == {torch.float32}
    predictor.save(tmp_path / "model")
    loaded = Attached.load(tmp_path / "model", Ending())
    assert {p.dtype for p in loaded.ensemble.backbone[0].parameters()} == {dtype}
    one, two = (each.predict(NEW.to(dtype), generator=seeded()).probabilities for each in (predictor, loaded))
    assert_close(one, two)
    single = attached(network.float()).predict(NEW, generator=seeded()).probabilities
    assert_close(one, single, atol=0.05, rtol=0.05)


def test_autocast_does_not_change_error_bars():
    """In bfloat16 the rounding of the members would be most of their variance."""
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    torch.manual_seed(0)
    targets = network(X).detach()
    plain = attach(network, Batch(X, targets), generator=seeded(), **OPTIONS)
    with torch.autocast("cpu", torch.bfloat16):
        within = attach(network, Batch(X, targets), generator=seeded(), **OPTIONS)
        predictions = [each.predict(NEW) for each in (plain, within)]
    expected = plain.predict(NEW)
    for prediction in predictions:
        assert_close(prediction.mean, expected.mean)
        assert_close(prediction.epistemic, expected.epistemic)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_heads_are_trained_in_code_that_is_for_inference(mode):
    network = Ending()
    torch.manual_seed(0)
    expected = attach(network, Batch(X, LABELS), generator=seeded(), **OPTIONS).predict(NEW, generator=seeded())
    torch.manual_seed(0)
    with mode():
        predictor = attach(network, Batch(X, LABELS), generator=seeded(), **OPTIONS)
        prediction = predictor.predict(NEW, generator=seeded())
    assert_close(prediction.probabilities, expected.probabilities)


@pytest.mark.slow
def test_a_network_that_ends_with_a_softmax_is_one_graph(tmp_path):
    pytest.importorskip("onnxruntime")
    predictor = attached(Ending())
    path = predictor.export(X[:2], tmp_path / "model.onnx", generator=seeded())
    for rows in (NEW, NEW[:1]):
        outputs, expected = run_onnx(path, rows.numpy()), predictor.predict(rows, generator=seeded())
        assert_close(torch.from_numpy(outputs["probabilities"]), expected.probabilities, atol=1e-5, rtol=0)
