"""Chains of equal convolutions with ReLUs are found in a program, and fused they give the same outputs."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp.nets import lite_resnet_features, resnet_features
from degp.nets.resnets import AverageOverPixels
from degp.priors import WeightPrior
from degp.runtime.execution import Compiled, Grouped, Loop, fusion, grouped_program
from degp.runtime.execution.fusion import Chain
from tests.fixtures import normal, seeded

LAYER = {"kernel_size": 3, "padding": 1, "bias": False}


def lengths(*layers):
    """How many convolutions are in each chain of a network."""
    module = layers[0] if len(layers) == 1 else nn.Sequential(nn.Conv2d(3, 4, 1), *layers, AverageOverPixels())
    return [len(step.layers) for _, step, _ in grouped_program(module).steps if isinstance(step, Chain)]


def links(count, channels=4, **other):
    return [layer for _ in range(count) for layer in (nn.Conv2d(channels, channels, **LAYER | other), nn.ReLU())]


def test_the_stages_of_the_priors_networks_are_chains():
    assert lengths(lite_resnet_features(20)) == [6, 5, 5]
    assert lengths(lite_resnet_features(56)) == [18, 17, 17]


def test_shortcuts_and_batch_norm_are_no_chains():
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


class UsedTwice(nn.Module):
    """The result in the middle of the chain is used elsewhere too."""

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


def test_a_result_that_is_used_elsewhere_ends_a_chain():
    assert lengths(UsedTwice()) == [2, 2]
    assert_close(*outputs_by(UsedTwice(), Grouped(), Loop()))


def outputs_by(module, *strategies, inputs=None):
    """The outputs of three networks of random weights."""
    drawn = WeightPrior().draw(module, 3, generator=seeded())
    others = {name: value.detach().expand(3, *value.shape) for name, value in module.named_parameters()}
    if inputs is None:
        inputs = normal(2, 3, 8, 8, seed=1, dtype=torch.float32)
    return [strategy(module, others | drawn, {}, inputs) for strategy in strategies]


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(fusion, "has_chain_kernel", lambda x, kernels: True)


def test_fused_networks_equal_the_loop(as_on_a_gpu):
    assert_close(*outputs_by(lite_resnet_features(20), Grouped(), Loop()))


@pytest.mark.compiled
def test_compiled_fused_networks_equal_the_loop(as_on_a_gpu):
    assert_close(*outputs_by(lite_resnet_features(8), Compiled(Grouped()), Loop()))


def test_gradients_flow_through_a_chain():
    network = lite_resnet_features(8)
    weights = WeightPrior().draw(network, 2)
    for value in weights.values():
        value.requires_grad_()
    Grouped()(network, weights, {}, torch.randn(2, 3, 8, 8)).sum().backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in weights.values())
