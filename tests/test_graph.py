"""An exported ensemble predicts the library's numbers for any number of points, whatever its members are."""

import copy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Categorical, Ensemble, Gaussian, methods, predict, priors
from degp.ensemble import lora, rank_one
from degp.graph import CLASSES, export_ensemble, exported_program, run_onnx
from degp.likelihoods import Bernoulli, HeteroscedasticGaussian
from tests.fixtures import normal, seeded

pytest.importorskip("onnxruntime")
PARTS = ("epistemic", "aleatoric", "total")


def mlp(inputs=4, outputs=3):
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))


def cnn():
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4, 3))


class Transformer(nn.Module):
    def __init__(self, outputs=3):
        super().__init__()
        self.embedding, self.readout = nn.Embedding(11, 8), nn.Linear(8, outputs)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, tokens):
        return self.readout(self.layer(self.embedding(tokens)).mean(1))


class Masked(Transformer):
    """Takes a dictionary, as tokenisers give."""

    def forward(self, inputs):
        mask = inputs["mask"][..., None]
        return self.readout((self.layer(self.embedding(inputs["tokens"])) * mask).sum(1) / mask.sum(1))


def rows(count):
    return normal(count, 4, seed=count, dtype=torch.float32)


def images(count):
    return normal(count, 3, 6, 6, seed=count, dtype=torch.float32)


def tokens(count):
    return torch.randint(11, (count, 5), generator=seeded(count))


def masked(count):
    return {"tokens": tokens(count), "mask": (tokens(count) > 2).float() + 0.1}


def heads(backbone):
    return Ensemble(lambda: nn.Linear(8, 3), 3, backbone=backbone)


CASES = {
    "MLP": (lambda: Ensemble(mlp, 3), rows),
    "two architectures": (lambda: Ensemble([nn.Linear(4, 3), mlp()]), rows),
    "BatchNorm": (lambda: Ensemble(cnn, 3), images),
    "Transformer": (lambda: Ensemble(Transformer, 3), tokens),
    "dictionary": (lambda: Ensemble(Masked, 2), masked),
    "heads": (lambda: heads(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh())), rows),
    "heads on a frozen Transformer": (lambda: heads(Transformer(8).requires_grad_(False)), tokens),
    "rank one": (lambda: rank_one(mlp(), 3), rows),
    "rank-one convolutions": (lambda: rank_one(cnn(), 3), images),
    "LoRA of an MLP": (lambda: lora(mlp(), 3, rank=2), rows),
    "LoRA": (lambda: lora(Transformer(), 3, rank=2), tokens),
}


def made(make, points):
    """An ensemble in training mode whose BatchNorm has seen data."""
    torch.manual_seed(0)
    ensemble = make()
    ensemble(points(16))
    return ensemble


def arrays(inputs):
    return {name: value.numpy() for name, value in inputs.items()} if isinstance(inputs, dict) else inputs.numpy()


def assert_same(path, ensemble, method, inputs, *, first="probabilities"):
    outputs = run_onnx(path, arrays(inputs))
    expected = predict(ensemble, inputs, method, generator=seeded())
    assert tuple(outputs) == (first, *PARTS)
    for name, value in outputs.items():
        np.testing.assert_allclose(value, getattr(expected, name).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_classes_are_the_librarys_for_any_number_of_points(name, tmp_path):
    make, points = CASES[name]
    ensemble, method = made(make, points), methods.degp(Categorical(1.7), priors.NNGP(1))
    before = copy.deepcopy(ensemble.state_dict())
    path = export_ensemble(ensemble, method, points(5), tmp_path / "model.onnx", generator=seeded())
    for count in (1, 7):
        assert_same(path, ensemble, method, points(count))
    assert ensemble.training
    assert_close(dict(ensemble.state_dict()), dict(before), rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_programs_of_torch_are_the_librarys_for_any_number_of_points(name, tmp_path):
    make, points = CASES[name]
    ensemble, method = made(make, points), methods.degp(Categorical(1.7), priors.NNGP(1))
    program = exported_program(ensemble, method, points(5), generator=seeded())
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for count in (1, 7):
        expected = predict(ensemble, points(count), method, generator=seeded())
        with torch.no_grad():
            outputs = loaded(points(count))
        for part, value in zip(CLASSES, outputs, strict=True):
            assert_close(value, getattr(expected, part), rtol=1e-5, atol=1e-5)


def test_sums_over_draws_lose_no_digits(tmp_path):
    """Nearly equal entropies of 1000 draws: added up one after another in float32, they would be off by 1e-5."""
    ensemble, method = made(lambda: Ensemble(mlp, 3), rows), methods.degp(Categorical(1000.0), priors.NNGP(1))
    path = export_ensemble(ensemble, method, rows(2), tmp_path / "model.onnx", generator=seeded())
    outputs, expected = run_onnx(path, rows(7).numpy()), predict(ensemble, rows(7), method, generator=seeded())
    for part in PARTS:
        np.testing.assert_allclose(outputs[part], getattr(expected, part).numpy(), rtol=0, atol=2e-6)


NUMBERS = {
    "DE-GP in units": methods.degp(Gaussian([0.3, 0.6], units=([3.0, -1.0], [0.5, 4.0])), priors.NNGP(1)),
    "DE-GP": methods.degp(Gaussian(0.3), priors.NNGP(1)),
    "DE": methods.de(Gaussian(0.3)),
    "DE-GP, noise by input": methods.degp(HeteroscedasticGaussian(0.3), priors.NNGP(1)),
    "DE, noise by input": methods.de(HeteroscedasticGaussian(0.3)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_the_librarys_for_any_number_of_points(name, tmp_path):
    ensemble = made(lambda: Ensemble(lambda: mlp(outputs=2), 3), rows)
    path = export_ensemble(ensemble, NUMBERS[name], rows(1), tmp_path / "model.onnx")  # one point is no constant
    for count in (1, 7):
        assert_same(path, ensemble, NUMBERS[name], rows(count), first="mean")


@pytest.mark.parametrize("make", [rank_one, partial(lora, rank=1)], ids=["rank one", "low rank"])
def test_a_file_has_the_weights_of_light_members_once_and_no_traces(make, tmp_path):
    network = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1))
    ensemble = make(network, 6)
    path = export_ensemble(ensemble, NUMBERS["DE-GP"], torch.zeros(2, 64), tmp_path / "model.onnx")
    stored = sum(4 * parameter.numel() for parameter in ensemble.parameters())
    assert stored < path.stat().st_size < 1.5 * stored + 2**15
    assert str(Path(__file__).parents[1]).encode() not in path.read_bytes()


@pytest.mark.parametrize("make", [rank_one, partial(lora, rank=1)], ids=["rank one", "low rank"])
def test_a_graph_of_linear_layers_does_not_grow_with_light_members(make, tmp_path):
    onnx = pytest.importorskip("onnx")
    network, sizes = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)), []
    for members in (2, 20):
        path = export_ensemble(make(network, members), NUMBERS["DE-GP"], rows(2), tmp_path / f"{members}.onnx")
        sizes.append(len(onnx.load(path).graph.node))
    assert sizes[0] == sizes[1]


def test_observations_after_training_are_part_of_the_graph(tmp_path):
    ensemble, method = made(lambda: Ensemble(lambda: mlp(outputs=1), 4), rows), NUMBERS["DE-GP"]
    with torch.no_grad():
        q = method.posterior(ensemble(rows(3)))
    coefficients = q.coefficients(torch.ones(3, 1, dtype=q.mean.dtype), noise_variance=0.3)
    path = export_ensemble(ensemble, method, rows(2), tmp_path / "model.onnx", coefficients=coefficients)
    outputs, expected = run_onnx(path, rows(7).numpy()), predict(ensemble, rows(7), method, coefficients=coefficients)
    for part in ("mean", *PARTS):
        np.testing.assert_allclose(outputs[part], getattr(expected, part).numpy(), rtol=1e-5, atol=1e-5)


def test_other_likelihoods_are_refused(tmp_path):
    with pytest.raises(
        TypeError, match=r"or a Categorical likelihood, but this one is a Bernoulli; export the members"
    ):
        export_ensemble(Ensemble(mlp, 2), methods.de(Bernoulli()), rows(2), tmp_path / "model.onnx")


def test_weights_that_onnxruntime_cannot_run_are_pointed_out(tmp_path):
    ensemble, method = heads(nn.Linear(4, 8).bfloat16()).bfloat16(), methods.de(Categorical())
    with pytest.warns(UserWarning, match=r"onnxruntime cannot run on a CPU; .* call float\(\) of the ensemble"):
        export_ensemble(ensemble, method, rows(2).bfloat16(), tmp_path / "half.onnx")
    path = export_ensemble(ensemble.float(), method, rows(2), tmp_path / "single.onnx")
    assert_close(
        torch.from_numpy(run_onnx(path, rows(7).numpy())["probabilities"]),
        predict(ensemble, rows(7), method).probabilities,
    )
