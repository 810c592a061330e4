"""Grouped members have the loop's values, gradients and statistics; networks without a grouped form say why."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from degp import Ensemble
from degp.nets import lenet, lenet_features, lite_resnet_features, mlp, resnet, resnet_features
from degp.runtime.execution import Grouped, Loop, NotGroupable, Recomputed, grouped_program
from tests.fixtures import normal

M, N = 3, 5


class Functions(nn.Module):
    """The same operations as functions and methods instead of layers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, groups=1)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.norm = nn.GroupNorm(2, 4)
        self.out = nn.Linear(4 * 4 * 4, 3)

    def forward(self, x):
        x = F.gelu(F.pad(self.conv(x), (0, 0, 0, 0)))
        x = torch.tanh(self.norm(self.depthwise(x))) + x
        return self.out(torch.flatten(F.avg_pool2d(x, 2), 1))


def images(channels=3, size=8):
    return normal(N, channels, size, size)


NETWORKS = {
    "resnet": (lambda: resnet(8, 4), images()),
    "resnet features": (lambda: resnet_features(8), images()),
    "lite resnet": (lambda: lite_resnet_features(8), images()),
    "lenet": (lenet, images(1, 28)),
    "lenet features": (lenet_features, images(1, 28)),
    "functions": (Functions, images(2)),
    "mlp": (lambda: nn.Sequential(nn.Flatten(), *mlp(192, (7,), 2)), images()),
    "pooled": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4, affine=False, track_running_stats=False), nn.SiLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2, bias=False)),
        ),
        images(),
    ),
}


def networks(name):
    torch.manual_seed(0)
    make, inputs = NETWORKS[name]
    return [make().double() for _ in range(M)], inputs


def outcome(modules, inputs, strategy):
    """Outputs in training and evaluation, gradients, and statistics after two steps."""
    ensemble = Ensemble(copy.deepcopy(modules), execution=strategy).train()
    (ensemble(inputs).square().sum() + ensemble(inputs.flip(0)).sin().sum()).backward()
    gradients = {name: parameter.grad for name, parameter in ensemble.named_parameters()}
    return ensemble(inputs).detach(), ensemble.eval()(inputs).detach(), gradients, dict(ensemble.named_buffers())


@pytest.mark.parametrize("strategy", [Grouped(), Recomputed()], ids=lambda strategy: strategy.name)
@pytest.mark.parametrize("name", NETWORKS)
def test_strategy_equals_the_loop(name, strategy):
    modules, inputs = networks(name)
    assert_close(outcome(modules, inputs, strategy), outcome(modules, inputs, Loop()), rtol=1e-10, atol=1e-12)


def test_recomputed_dropout_draws_the_same_twice():
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 2)).double() for _ in range(M)]
    inputs = torch.randn(N, 4, dtype=torch.float64)
    results = []
    for strategy in (Recomputed(), Loop()):
        torch.manual_seed(1)
        results.append(outcome(modules, inputs, strategy))
    assert_close(*results)


def test_grouped_dropout_differs_between_members():
    network = nn.Sequential(nn.Conv2d(1, 64, 1), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 1))
    ensemble = Ensemble([copy.deepcopy(network) for _ in range(2)], execution=Grouped()).train()
    first, second = ensemble(torch.ones(1, 1, 1, 1))
    assert not torch.equal(first, second)


def test_channels_last_inputs_give_the_same_outputs():
    ensemble = Ensemble(lambda: resnet(8, 3), 2, execution=Grouped()).double()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    last = ensemble(images.contiguous(memory_format=torch.channels_last))
    assert_close(last, ensemble(images))


class Sums(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv, self.out, self.function = nn.Conv2d(3, 3, 1), nn.Linear(3, 2), function

    def forward(self, x):
        return self.out(self.function(self.conv(x), x).mean((2, 3)))


NOT_GROUPABLE = {
    "an unknown layer": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.InstanceNorm2d(4)),
        "grouped form of InstanceNorm2d",
    ),
    "images as outputs": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1)), "its outputs are not"),
    "members and inputs added": (lambda: Sums(operator.add), "a sum of activations of different form"),
    "an unknown function": (lambda: Sums(torch.maximum), "grouped form of maximum"),
    "control flow": (lambda: Sums(lambda x, y: x if x.sum() > 0 else y), "cannot be traced"),
    "cumulative statistics": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, momentum=None)),
        "averages its statistics over all batches",
    ),
    "other padding": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")), "pads by reflect"),
    "grouped inputs": (lambda: nn.Sequential(nn.Conv2d(3, 3, 1, groups=3)), "groups the channels of the inputs"),
    "linear over pixels": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Linear(8, 2)), r"gets \(N, M·C, H, W\)"),
    "inputs dropped": (lambda: nn.Sequential(nn.Dropout(), nn.Flatten(), nn.Linear(192, 2)), "drops inputs"),
    "part of a flattening": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(2)), "flatten from axis 2"),
}


@pytest.mark.parametrize("name", NOT_GROUPABLE)
def test_a_network_without_a_grouped_form_says_why(name):
    make, message = NOT_GROUPABLE[name]
    with pytest.raises(NotGroupable, match=message):
        grouped_program(make())
