"""Runs of equal convolutions are found, and give as one operation what they give one by one."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from degp.execution import Compiled, Folded, Loop, chains, folded
from degp.execution.chains import Chain
from degp.nets import lite_resnet_features, resnet_features
from degp.nets.resnet import AverageOverPixels
from degp.priors import WeightPrior

LAYER = {"kernel_size": 3, "padding": 1, "bias": False}


def lengths(*layers):
    """How many convolutions are in each chain of a network."""
    module = layers[0] if len(layers) == 1 else nn.Sequential(nn.Conv2d(3, 4, 1), *layers, AverageOverPixels())
    return [len(step.layers) for _, step, _ in folded(module).steps if isinstance(step, Chain)]


def links(count, channels=4, **other):
    return [layer for _ in range(count) for layer in (nn.Conv2d(channels, channels, **LAYER | other), nn.ReLU())]


def test_the_stages_of_the_priors_networks_are_chains():
    assert lengths(lite_resnet_features(20)) == [6, 5, 5]
    assert lengths(lite_resnet_features(56)) == [18, 17, 17]


def test_shortcuts_and_batch_norm_are_none():
    assert lengths(resnet_features(20)) == []


@pytest.mark.parametrize(
    "other",
    [{"bias": True}, {"kernel_size": 5, "padding": 2}, {"padding": 0}, {"dilation": 2, "padding": 2}, {"groups": 2}],
)
def test_other_convolutions_break_a_chain(other):
    assert lengths(*links(3)) == [3]
    assert lengths(*links(2), *links(1, **other), *links(3)) == [2, 3]
    assert lengths(*links(2, **other)) == []


def test_a_single_convolution_is_no_chain_and_a_last_one_without_relu_is_left_out():
    assert lengths(*links(1), nn.Tanh(), *links(1)) == []
    assert lengths(*links(3)[:-1]) == [2]
    assert lengths(*links(2), nn.Conv2d(4, 8, **LAYER), nn.ReLU(), *links(2, 8)) == [2, 2]


class TakenTwice(nn.Module):
    """The middle of the run is wanted elsewhere."""

    def __init__(self):
        super().__init__()
        self.first, self.run = nn.Conv2d(3, 4, 1), nn.ModuleList(links(4))

    def forward(self, x):
        x = self.first(x)
        for layer in self.run[:4]:
            x = layer(x)
        kept = x
        for layer in self.run[4:]:
            x = layer(x)
        return (x + kept).mean((2, 3))


def test_what_others_take_too_ends_a_chain():
    assert lengths(TakenTwice()) == [2, 2]
    assert_close(*by_ways(TakenTwice(), Folded(), Loop()))


def by_ways(module, *ways, inputs=None):
    """The outputs of three networks of random weights."""
    drawn = WeightPrior().draw(module, 3, generator=torch.Generator().manual_seed(0))
    others = {name: value.detach().expand(3, *value.shape) for name, value in module.named_parameters()}
    if inputs is None:
        inputs = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return [way(module, others | drawn, {}, inputs) for way in ways]


@given(
    members=st.integers(1, 4),
    layers=st.integers(1, 4),
    images=st.integers(1, 3),
    size=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_the_operation_is_its_convolutions_one_by_one(members, layers, images, size, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(images, size, size + 1, members * 4, generator=generator, dtype=torch.float64)
    kernels = torch.randn(members, layers, 4, 3, 3, 4, generator=generator, dtype=torch.float64)
    outputs = torch.ops.degp.chain(x, kernels)
    for own, network, result in zip(x.split(4, 3), kernels, outputs.split(4, 3), strict=True):
        y = own.permute(0, 3, 1, 2)
        for kernel in network:
            y = F.conv2d(y, kernel.permute(0, 3, 1, 2), padding=1).clamp(min=0)
        assert_close(result, y.permute(0, 2, 3, 1))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(chains, "_for_one_kernel", lambda x, kernels: True)


def test_networks_by_the_operation_are_the_loops(as_on_a_gpu):
    assert_close(*by_ways(lite_resnet_features(20), Folded(), Loop()))


@pytest.mark.compiled
def test_compiled_networks_by_the_operation_are_the_loops(as_on_a_gpu):
    assert_close(*by_ways(lite_resnet_features(8), Compiled(Folded()), Loop()))


def test_torch_finds_the_operation_sound():
    x, kernels = torch.randn(2, 4, 5, 6), torch.randn(3, 2, 2, 3, 3, 2)
    torch.library.opcheck(torch.ops.degp.chain.default, (x, kernels))


def test_who_asks_for_gradients_gets_them():
    network = lite_resnet_features(8)
    weights = WeightPrior().draw(network, 2)
    for value in weights.values():
        value.requires_grad_()
    Folded()(network, weights, {}, torch.randn(2, 3, 8, 8)).sum().backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in weights.values())
