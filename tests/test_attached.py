"""Members attached to a trained network: near the exact process on its features, the network untouched, one folder."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from degp import attach
from degp.attached import Attached
from degp.features import features_of
from degp.graph import run_onnx
from degp.priors import ExactGP
from tests.fixtures import normal, seeded

X = normal(80, 4, dtype=torch.float32)
NEW = normal(20, 4, seed=1, dtype=torch.float32)


class Body(nn.Module):
    """A network of the user's own, with BatchNorm and Dropout, left in training mode."""

    def __init__(self, outputs):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(4, 12), nn.BatchNorm1d(12), nn.Dropout(0.2)
        self.head = nn.Linear(12, outputs)

    def forward(self, x):
        return self.head(self.drop(self.norm(self.first(x)).tanh()))


def trained(outputs):
    torch.manual_seed(0)
    network = Body(outputs)
    for _ in range(20):
        network(X)
    return network


def quick(network, targets, **options):
    loader = DataLoader(TensorDataset(X, targets), 32, shuffle=True)
    settings = {"members": 16, "width": 64, "steps": 60, "batch_size": 80, "generator": seeded(), "progress": False}
    return attach(network, loader, **settings | options)


def real():
    return 300 + 50 * (X[:, 0].sin() + X[:, 1]) + 2 * normal(80, seed=2, dtype=torch.float32)


def test_regression_is_near_the_exact_process_on_the_features():
    network, y = trained(1), real()
    before = copy.deepcopy(network.state_dict())
    attached = quick(network, y, steps=500)
    prediction = attached.predict(NEW)
    scales = attached.scales
    features, points = (features_of(attached.ensemble.backbone, inputs) for inputs in (X, NEW))
    unit = float(y.std(correction=0))
    exact = ExactGP.fit(scales.nngp(), features, ((y - y.mean()) / unit)[:, None], noise_variance=scales.noise_variance)
    mean = float(y.mean()) + unit * exact.mean(points)
    assert float((prediction.mean - mean).square().mean().sqrt()) < 0.2 * unit
    ratio = prediction.epistemic.mean().sqrt() / (unit * exact.variance(points).mean().sqrt())
    assert 0.5 < float(ratio) < 2.0
    truth = 300 + 50 * (NEW[:, :1].sin() + NEW[:, 1:2])
    assert float((prediction.mean - truth).square().mean().sqrt()) < 0.5 * unit
    assert 0 < float(prediction.epistemic.min())
    assert_close(dict(network.state_dict()), dict(before), rtol=0, atol=0)
    assert all(part.training for part in network.modules())
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_classes_are_learned():
    labels = (X[:, 0] > 0).long() + (X[:, 1] > 1).long()
    attached = quick(trained(3), labels, steps=300)
    probabilities = attached.predict(X, generator=seeded()).probabilities
    assert float((probabilities.argmax(1) == labels).float().mean()) > 0.8  # the largest class has half of the points
    assert probabilities.shape == (80, 3)


@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_a_predictor_is_one_folder(kind, tmp_path):
    network = trained(1)
    targets = real() if kind == "regression" else (X[:, 0] > 0).long()
    attached = quick(network, targets, steps=2)
    attached.save(tmp_path / "model")
    loaded = Attached.load(tmp_path / "model", Body(1))
    expected, found = (p.predict(NEW, generator=seeded()) for p in (attached, loaded))
    assert_close(found.total, expected.total)
    assert_close(found.epistemic, expected.epistemic)


def test_a_sequential_network_needs_nothing_but_its_folder(tmp_path):
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    attached = quick(network, real(), steps=1)
    attached.save(tmp_path / "model")
    assert_close(Attached.load(tmp_path / "model").predict(NEW).std, attached.predict(NEW).std)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_a_predictor_is_one_graph(kind, tmp_path):
    pytest.importorskip("onnxruntime")
    targets = real() if kind == "regression" else (X[:, 0] > 0).long()
    attached = quick(trained(1), targets, steps=2)
    path = attached.export(X[:2], tmp_path / "model.onnx", generator=seeded())
    for rows in (NEW, NEW[:1]):
        outputs, expected = run_onnx(path, rows.numpy()), attached.predict(rows, generator=seeded())
        unit = 50.0 if kind == "regression" else 1.0
        for name in ("epistemic", "aleatoric", "total"):
            assert_close(
                torch.tensor(outputs[name]) / unit**2, getattr(expected, name).float() / unit**2, rtol=1e-4, atol=1e-5
            )


class Backwards(nn.Module):
    """Its last layer is not the last that it defines."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(8, 1), nn.Linear(4, 8)

    def forward(self, x):
        return self.head(self.body(x).tanh())


def test_the_layer_to_replace_can_be_named():
    assert len(quick(Backwards(), real(), layer="head", steps=1).ensemble) == 16
    with pytest.raises(ValueError, match=r"to the network's outputs, but .*; pass the name of the last layer"):
        quick(Backwards(), real(), steps=1)
    with pytest.raises(ValueError, match=r"replace a linear layer .*, but 'x' is none; there are: head, body"):
        quick(Backwards(), real(), layer="x")
