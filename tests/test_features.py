"""Cached features: each point passes the frozen network once, and heads train on them as on the inputs."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from degp import Batch, Ensemble, Gaussian, cache_features, fit, methods
from degp.features import features_of
from degp.runtime import progress
from degp.runtime.execution import Vmap
from tests.fixtures import normal, seeded

X = normal(10, 3, dtype=torch.float32)
Y = X[:, :1]
LOADER = DataLoader(TensorDataset(X, Y), 4)


def frozen():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Tanh())
    backbone(X)
    return backbone.requires_grad_(False)


@pytest.mark.parametrize("data", [Batch(X, Y), TensorDataset(X, Y), LOADER], ids=["batch", "dataset", "loader"])
def test_features_are_those_of_evaluation_mode(data):
    backbone = frozen()
    before = copy.deepcopy(backbone.state_dict())
    cached = cache_features(backbone, data, batch_size=3)
    assert_close(cached.inputs, copy.deepcopy(backbone).eval()(X))
    assert_close(cached.targets, Y)
    assert cached.population == 10
    assert all(part.training for part in backbone.modules())
    assert_close(dict(backbone.state_dict()), dict(before), rtol=0, atol=0)


def test_a_backbone_without_weights_runs_where_the_data_are():
    elsewhere = Batch(X.to("meta"), Y.to("meta"))
    assert cache_features(nn.Flatten(), elsewhere).device.type == "meta"


def test_heads_train_on_features_as_on_the_inputs():
    method = methods.de(Gaussian(0.1))

    def made():
        torch.manual_seed(1)
        return Ensemble(lambda: nn.Linear(5, 1), 4, backbone=frozen(), execution=Vmap())

    slow, quick, calls = made(), made(), []
    options = {"epochs": 3, "batch_size": 4, "progress": False}
    fit(slow, Batch(X, Y), method, generator=seeded(), **options)
    quick.backbone.register_forward_hook(lambda layer, inputs, outputs: calls.append(len(outputs)))
    data = cache_features(quick.backbone, Batch(X, Y))
    fit(quick.on_features(), data, method, generator=seeded(), **options)
    assert sum(calls) == len(X)
    assert_close(quick.eval()(X), slow.eval()(X))
    assert_close(quick.on_features()(features_of(quick.backbone, X)), quick(X))


def test_a_file_is_read_instead_of_running_the_backbone(tmp_path):
    backbone, calls = frozen(), []
    backbone.register_forward_hook(lambda *_: calls.append(1))
    first = cache_features(backbone, Batch(X, Y), path=tmp_path / "features.safetensors")
    count = len(calls)
    again = cache_features(backbone, Batch(X, Y), path=tmp_path / "features.safetensors")
    assert count > 0 and len(calls) == count
    assert torch.equal(again.inputs, first.inputs) and torch.equal(again.targets, first.targets)


@pytest.mark.parametrize("path", [None, "features.safetensors"])
def test_weights_stay_with_their_points(path, tmp_path):
    w = torch.linspace(0.5, 1.5, 10)
    for _ in range(2):  # computed, then read
        cached = cache_features(frozen(), Batch(X, Y, weights=w), path=path and tmp_path / path, batch_size=3)
        assert_close(cached.weights, w)


def test_features_of_another_backbone_are_refused(tmp_path):
    backbone = frozen()
    cache_features(backbone, Batch(X, Y), path=tmp_path / "features.safetensors")
    nn.init.zeros_(backbone[0].bias)
    with pytest.raises(ValueError, match=r"must hold features of this backbone, but .*; delete the file, or choose"):
        cache_features(backbone, Batch(X, Y), path=tmp_path / "features.safetensors")


def test_only_heads_have_features():
    with pytest.raises(ValueError, match="only stacked heads on a backbone have features"):
        Ensemble(lambda: nn.Linear(3, 1), 2).on_features()


def test_no_points_have_no_features():
    assert features_of(nn.Linear(2, 3), torch.zeros(0, 2)).shape == (0, 3)
    with pytest.raises(ValueError, match="batch_size is a number of points and must be at least 1, but it is 0"):
        features_of(nn.Linear(2, 3), torch.zeros(4, 2), batch_size=0)


@pytest.mark.parametrize("loader", [LOADER, iter(LOADER)], ids=["loader", "iterator"])
def test_the_passage_of_points_shows_its_progress(loader, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    cache_features(frozen(), loader, progress=True)
    of = " of 10" if loader is LOADER else ""
    shown = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == [f"point {count}{of}" for count in (4, 8, 10)]
