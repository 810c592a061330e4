"""Every way to run members gives the loop's values, gradients and statistics, and says what it cannot do."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from degp import Ensemble
from degp.execution import (
    Compiled,
    Folded,
    Loop,
    NotFoldable,
    Recomputed,
    Vmap,
    candidates_for,
    compiled_forward,
    fastest,
    folded,
)
from degp.execution.layers import Convolution, as_product, strided_by_blocks
from degp.nets import lenet, lenet_features, lite_resnet_features, mlp, resnet, resnet_features
from degp.priors import MonteCarloNNGP

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
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, channels, size, size, generator=generator, dtype=torch.float64)


NETWORKS = {
    "resnet": (lambda: resnet(8, 4), images()),
    "resnet trunk": (lambda: resnet_features(8), images()),
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


def outcome(modules, inputs, way):
    """Outputs in training and evaluation, gradients, and statistics after two steps."""
    ensemble = Ensemble(copy.deepcopy(modules), execution=way).train()
    (ensemble(inputs).square().sum() + ensemble(inputs.flip(0)).sin().sum()).backward()
    gradients = {name: parameter.grad for name, parameter in ensemble.named_parameters()}
    return ensemble(inputs).detach(), ensemble.eval()(inputs).detach(), gradients, dict(ensemble.named_buffers())


@pytest.mark.parametrize("way", [Folded(), Recomputed()], ids=lambda way: way.name)
@pytest.mark.parametrize("name", NETWORKS)
def test_equals_the_loop(name, way):
    modules, inputs = networks(name)
    assert_close(outcome(modules, inputs, way), outcome(modules, inputs, Loop()), rtol=1e-10, atol=1e-12)


def test_recomputed_dropout_draws_the_same_twice():
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 2)).double() for _ in range(M)]
    inputs = torch.randn(N, 4, dtype=torch.float64)
    results = []
    for way in (Recomputed(), Loop()):
        torch.manual_seed(1)
        results.append(outcome(modules, inputs, way))
    assert_close(*results)


def test_folded_dropout_differs_between_members():
    network = nn.Sequential(nn.Conv2d(1, 64, 1), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 1))
    ensemble = Ensemble([copy.deepcopy(network) for _ in range(2)], execution=Folded()).train()
    first, second = ensemble(torch.ones(1, 1, 1, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("size", [7, 8, 11])
@pytest.mark.parametrize("k, stride, padding", [(3, 2, 1), (1, 2, 0), (5, 2, 2), (3, 3, 0), (4, 3, 1), (2, 2, 0)])
def test_a_strided_convolution_by_blocks_is_that_convolution(k, stride, padding, size):
    generator = torch.Generator().manual_seed(0)
    x, kernel, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 6, size, size + 2), (9, 2, k, k), (9,))
    )
    blocks = strided_by_blocks(x, kernel, bias, stride, padding, groups=3)
    assert_close(blocks, F.conv2d(x, kernel, bias, stride, padding, groups=3))


def test_many_channels_to_few_by_blocks_is_the_same_convolution():
    generator = torch.Generator().manual_seed(0)
    x, kernel, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((2, 48, 8, 8), (96, 16, 3, 3), (96,))
    )
    x.requires_grad_()
    blocks, plain = strided_by_blocks(x, kernel, bias, 2, 1, groups=3), F.conv2d(x, kernel, bias, 2, 1, groups=3)
    assert_close(blocks, plain)
    assert_close(*(torch.autograd.grad(y.square().sum(), x) for y in (blocks, plain)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "channels, k, stride, padding", [(3, 3, 1, 1), (1, 5, 1, 2), (1, 5, 1, 0), (3, 4, 3, 1), (8, 1, 2, 0)]
)
def test_a_convolution_of_few_channels_as_a_product_is_that_convolution(channels, k, stride, padding, bias):
    generator = torch.Generator().manual_seed(0)
    x, kernel, shift = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((2, channels, 7, 9), (5, channels, k, k), (5,))
    )
    shift = shift if bias else None
    product, plain = as_product(x, kernel, shift, stride, padding), F.conv2d(x, kernel, shift, stride, padding)
    assert_close(product, plain)
    wanted = [value for value in (x, kernel, shift) if value is not None]
    assert_close(*(torch.autograd.grad(y.square().sum(), wanted) for y in (product, plain)))


@pytest.mark.parametrize(
    "few, layer",
    [
        (True, nn.Conv2d(3, 16, 3, padding=1)),
        (True, nn.Conv2d(1, 6, 5)),
        (False, nn.Conv2d(16, 16, 3, padding=1)),
        (False, nn.Conv2d(3, 16, 3, padding=1, dilation=2)),
        (False, nn.Conv2d(3, 16, (3, 1))),
        (False, nn.Conv2d(3, 16, 3, padding="same")),
    ],
)
def test_which_convolutions_are_products(few, layer):
    assert Convolution("layer", layer, shared=True).has_small_windows is few
    assert not Convolution("layer", layer, shared=False).has_small_windows


def test_channels_stay_last_where_they_are_so():
    ensemble = Ensemble(lambda: resnet(8, 3), 2, execution=Folded()).double()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    last = ensemble(images.contiguous(memory_format=torch.channels_last))
    assert_close(last, ensemble(images))


class Sums(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv, self.out, self.function = nn.Conv2d(3, 3, 1), nn.Linear(3, 2), function

    def forward(self, x):
        return self.out(self.function(self.conv(x), x).mean((2, 3)))


UNFOLDABLE = {
    "an unknown layer": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.InstanceNorm2d(4)),
        "folded form of InstanceNorm2d",
    ),
    "images as outputs": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1)), "its outputs are not"),
    "members and inputs added": (lambda: Sums(operator.add), "a sum of activations of different form"),
    "an unknown function": (lambda: Sums(torch.maximum), "folded form of maximum"),
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


@pytest.mark.parametrize("name", UNFOLDABLE)
def test_what_cannot_be_folded_says_why(name):
    make, message = UNFOLDABLE[name]
    with pytest.raises(NotFoldable, match=message):
        folded(make())


def test_the_fastest_way_is_one_that_works():
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.Flatten(1), nn.Linear(144, 2)), M)
    choice = ensemble.choose_execution(images().float())
    assert set(choice.milliseconds) == {"vmap", "loop"}
    assert "not folded: flatten from axis 2" in str(choice)
    assert min(choice.milliseconds.values()) >= 0.95 * choice.milliseconds[choice.execution.name]


def test_no_way_at_all_is_an_error():
    class Broken(nn.Linear):
        def forward(self, x):
            raise ValueError("broken")

    with pytest.raises(RuntimeError, match=r"no way to run the members works: .*broken"):
        fastest(Broken(2, 2), {}, {}, torch.zeros(3, 2))


def test_candidates_on_the_cpu_need_no_compiler():
    assert candidates_for(torch.zeros(1)) == (Vmap(), Loop(), Folded())


def test_the_prior_runs_folded_where_it_can():
    prior = MonteCarloNNGP(lite_resnet_features(8).double(), num_draws=4)
    assert prior.execution == Folded()
    by_vmap = MonteCarloNNGP(lite_resnet_features(8).double(), num_draws=4, execution=Vmap())
    grams = [p.kernel(generator=torch.Generator().manual_seed(3))(images(), images()) for p in (prior, by_vmap)]
    assert_close(*grams)


def test_compiled_names_its_way():
    assert Compiled(Folded()).name == "compiled folded"


@pytest.mark.compiled
def test_a_module_runs_compiled_for_a_while():
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()).double()
    other, x = copy.deepcopy(trunk), torch.randn(5, 3, dtype=torch.float64)
    with compiled_forward(trunk):
        inside = trunk(x)
    inside.sum().backward()
    expected = other(x)
    expected.sum().backward()
    assert_close(inside, expected)
    assert_close(trunk[0].weight.grad, other[0].weight.grad)
    assert_close(trunk.state_dict(), other.state_dict())
    assert "forward" not in vars(trunk)
    with pytest.raises(KeyError), compiled_forward(trunk):
        raise KeyError
    assert "forward" not in vars(trunk)
    with compiled_forward(trunk):
        outer = trunk.forward
        with compiled_forward(trunk):
            assert trunk.forward is not outer
        assert trunk.forward is outer
    assert "forward" not in vars(trunk)


def test_depths_of_resnets():
    assert sum(p.numel() for p in resnet(20, 10).parameters()) == 269_722
    assert sum(isinstance(layer, nn.Conv2d) for layer in resnet(56, 10).modules()) == 55
    with pytest.raises(ValueError, match="6n \\+ 2"):
        resnet(18, 10)
