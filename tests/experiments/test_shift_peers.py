"""Peers under shift: norms, features and variances of SNGP equal dense references; draws of Laplace scatter."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Ensemble
from degp.runtime.execution import Loop, Vmap
from degp.training import History
from degp.vision import Trained, initialise, train
from experiments.protocols.image_smoke import synthetic_sets, tiny
from experiments.protocols.random_features import RandomFeatures, precision_root, variances
from experiments.protocols.shift.laplace import last_layers
from experiments.protocols.shift.runs import run_by_name
from experiments.protocols.shift.sngp import (
    MEAN_FIELD,
    BoundedConvolution,
    DistanceAware,
    mean_field,
    orthogonal_frequencies,
)

SETS = synthetic_sets()


def dense(convolution, size):
    """The matrix of a convolution without bias on images of this size."""
    unit = torch.eye(convolution.in_channels * size * size).view(-1, convolution.in_channels, size, size)
    return nn.functional.conv2d(unit, convolution.weight, None, convolution.stride, convolution.padding).flatten(1)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_a_bounded_convolution_has_at_most_its_norm(stride, scale):
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 4, 3, stride, padding=1)
    layer = BoundedConvolution(plain, (6, 6), bound=2.0)
    layer.load_state_dict({**plain.state_dict(), "direction": layer.direction})
    with torch.no_grad():
        layer.weight.mul_(scale)
    norm = torch.linalg.matrix_norm(dense(layer, 6), 2)
    x = torch.randn(2, 3, 6, 6)
    for _ in range(300):
        layer(x)
    assert_close(layer.eval().norm(), norm, rtol=1e-3, atol=0)
    factor = min(1.0, 2.0 / norm.item())
    expected = nn.functional.conv2d(x, layer.weight * factor, layer.bias, stride, 1)
    assert_close(layer(x), expected, rtol=1e-3, atol=1e-4)


def test_only_training_moves_the_direction_of_a_norm():
    layer = BoundedConvolution(nn.Conv2d(3, 4, 3, padding=1), (6, 6)).eval()
    before = layer.direction.clone()
    layer(torch.randn(1, 3, 6, 6))
    assert torch.equal(layer.direction, before)
    layer.train()(torch.randn(1, 3, 6, 6))
    assert not torch.equal(layer.direction, before)


def test_frequencies_of_a_block_are_orthogonal_and_normal_in_length():
    frequencies = orthogonal_frequencies(50, 120, torch.Generator().manual_seed(0))
    gram = frequencies.mT @ frequencies
    lengths = gram.diagonal()
    assert frequencies.shape == (50, 120)
    assert (gram[:50, :50] - lengths[:50].diag()).abs().max() < 1e-3
    assert lengths.mean() == pytest.approx(50, rel=0.1)


def test_random_features_have_the_kernel_of_squared_distances():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(5, 3, generator=generator)
    phi = RandomFeatures(torch.randn(3, 200_000, generator=generator), generator, math.sqrt(2 / 200_000))(points)
    assert_close(phi @ phi.mT, torch.exp(-0.5 * torch.cdist(points, points).square()), rtol=0, atol=0.01)


@pytest.mark.parametrize("weights", [None, torch.rand(20)])
def test_variances_are_those_of_the_dense_posterior(weights):
    torch.manual_seed(0)
    features, new = torch.randn(20, 7).double(), torch.randn(4, 7).double()
    weighted = features if weights is None else weights[:, None] * features
    covariance = torch.linalg.inv(0.5 * torch.eye(7).double() + weighted.mT @ features)
    assert_close(variances(precision_root(features, 0.5, weights), new), (new @ covariance @ new.mT).diagonal())


def small(name, make_network=tiny):
    recipe = run_by_name(name, "resnet20", 1, 0).recipe
    return replace(recipe, make_network=make_network, epochs=1, batch_size=16)


def test_sngp_divides_logits_by_their_uncertainty():
    trained = train(small("sngp", DistanceAware(tiny)), SETS.train, seed=0, progress=False)
    outputs = mean_field(trained, SETS).outputs(SETS.test.inputs)
    plain = trained.outputs(SETS.test.inputs)
    ratio = plain / outputs
    assert outputs.shape == plain.shape == (1, 32, 10)
    assert_close(ratio, ratio[..., :1].expand_as(ratio), rtol=1e-3, atol=1e-4)  # one variance for all classes
    network = trained.ensemble.to_modules()[0].eval()
    phi, new = (
        network[:-1](trained.recipe.normalise("cpu")(x)).detach() for x in (SETS.train.inputs, SETS.test.inputs)
    )
    inverse = torch.linalg.inv(torch.eye(phi.shape[1]).double() + phi.mT.double() @ phi.double())
    variance = (new.double() @ inverse * new).sum(1)
    assert_close(ratio[0, :, 0].double(), (1 + MEAN_FIELD * variance).sqrt(), rtol=1e-2, atol=1e-3)


def test_norms_move_alike_however_members_run():
    ensemble, images = Ensemble(DistanceAware(tiny), 2), torch.randn(4, 3, 32, 32)
    start = {name: value.clone() for name, value in ensemble.state_dict().items()}
    found = []
    for execution in (Vmap(), Loop()):
        ensemble.load_state_dict(start)
        ensemble.execution = execution
        ensemble(images)
        found.append((ensemble(images).detach(), {name: v.clone() for name, v in ensemble.named_buffers()}))
    assert_close(found[0], found[1])
    assert any(not torch.equal(found[0][1][name], start[name]) for name in found[0][1] if "direction" in name)


def test_convolutions_of_sngp_are_bounded_in_every_residual_block():
    network = run_by_name("sngp", "resnet20", 1, 0).recipe.make_network()
    kinds = {type(layer) for layer in network.modules() if isinstance(layer, nn.Conv2d)}
    assert kinds == {BoundedConvolution}
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_laplace_draws_scatter_around_the_members_outputs():
    pytest.importorskip("laplace")
    recipe = small("laplace-m2")
    ensemble, method = initialise(recipe, seed=0)
    trained = Trained(recipe, 0, ensemble.eval(), method, History())
    drawn = last_layers(trained, SETS)
    outputs = drawn.outputs(SETS.test.inputs)
    assert outputs.shape == (100, 32, 10) and torch.equal(outputs, drawn.outputs(SETS.test.inputs))
    for own, plain in zip(outputs.split(50), trained.outputs(SETS.test.inputs), strict=True):
        assert ((own.mean(0) - plain).abs() < 6 * own.std(0) / math.sqrt(50)).all()
        assert (own.std(0) > 0).all()
