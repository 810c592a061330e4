"""Narrow convolutions of many networks: values, adjoint, gradients, and the choice between two forms of them."""

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from degp import Ensemble
from degp.execution import Compiled, Folded, Loop, either, layers, narrow
from degp.execution.either import Either
from degp.nets import resnet

KERNELS = "degp.execution.triton_convolutions"
convolve, kernel_gradient = torch.ops.degp.narrow, torch.ops.degp.narrow_kernel_gradient


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    "other",
    [
        {"bias": True},
        {"out_channels": 8},
        {"kernel_size": 5, "padding": 2},
        {"padding": 0},
        {"stride": 2},
        {"dilation": 2, "padding": 2},
        {"groups": 2},
        {"padding_mode": "reflect"},
    ],
)
def test_which_convolutions_are_narrow(other):
    usual = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "padding": 1, "bias": False}
    assert narrow.is_narrow(nn.Conv2d(**usual))
    assert not narrow.is_narrow(nn.Conv2d(**usual | other))


def test_on_a_cpu_and_in_full_precision_there_is_no_kernel_of_ours():
    x, kernel = torch.randn(2, 48, 8, 8), torch.randn(3, 16, 16, 3, 3)
    assert not narrow.has_kernel(x, kernel)
    assert not narrow.has_kernel(x.bfloat16(), kernel)


sizes = {
    "members": st.integers(1, 3),
    "images": st.integers(1, 3),
    "height": st.integers(1, 5),
    "width": st.integers(1, 5),
}


@given(**sizes)
def test_it_is_each_networks_own_convolution(members, images, height, width):
    x, kernel = drawn(images, height, width, members * 4), drawn(members, 4, 3, 3, 4, seed=1)
    for own, k, y in zip(x.split(4, 3), kernel, convolve(x, kernel, False).split(4, 3), strict=True):
        assert_close(y, F.conv2d(own.permute(0, 3, 1, 2), k.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1))


@given(**sizes)
def test_the_adjoint_is_the_adjoint(members, images, height, width):
    x, y = drawn(images, height, width, members * 2), drawn(images, height, width, members * 2, seed=1)
    kernel = drawn(members, 2, 3, 3, 2, seed=2)
    assert_close((y * convolve(x, kernel, False)).sum(), (convolve(y, kernel, True) * x).sum())


@pytest.mark.parametrize("adjoint", [False, True])
def test_gradients_are_those_of_differences(adjoint):
    x, kernel = drawn(2, 3, 4, 6).requires_grad_(), drawn(3, 2, 3, 3, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, kernel: convolve(x, kernel, adjoint), (x, kernel))
    assert torch.autograd.gradcheck(lambda x: convolve(x, kernel.detach(), adjoint), (x,))


def test_torch_finds_the_operations_sound():
    x, dy, kernel = drawn(2, 4, 5, 6).requires_grad_(), drawn(2, 4, 5, 6), drawn(3, 2, 3, 3, 2).requires_grad_()
    torch.library.opcheck(convolve.default, (x, kernel, False))
    torch.library.opcheck(kernel_gradient.default, (x.detach(), dy, kernel.detach()))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(layers, "has_kernel", lambda x, kernel: True)


def outcome(way, modules, inputs):
    ensemble = Ensemble(modules, execution=way).double()
    outputs = ensemble(inputs)
    return outputs, torch.autograd.grad(outputs.square().sum(), list(ensemble.parameters()))


def three_resnets():
    torch.manual_seed(0)
    return [resnet(8, 4) for _ in range(3)], drawn(2, 3, 8, 8)


def test_members_by_the_operations_are_the_loops(as_on_a_gpu):
    assert_close(*(outcome(way, *three_resnets()) for way in (Folded(), Loop())))


@pytest.mark.compiled
def test_compiled_members_by_the_operations_are_the_loops(as_on_a_gpu):
    assert_close(*(outcome(way, *three_resnets()) for way in (Compiled(Folded()), Loop())))


# The choice between two forms ------------------------------------------------------------------------------------


def doubled(x, kernel):
    return 2 * x


def test_a_kernel_that_cannot_run_is_done_without():
    with pytest.warns(UserWarning, match="as PyTorch has them"):
        assert Either(doubled, "there is none such")._faster(torch.ones(3), torch.ones(2)) is doubled


def test_a_kernel_that_errs_is_done_without(monkeypatch):
    monkeypatch.setitem(sys.modules, KERNELS, SimpleNamespace(double=lambda x, kernel: 2.2 * x))
    with pytest.warns(UserWarning, match="not those"):
        assert Either(doubled, "double")._faster(torch.ones(3), torch.ones(2)) is doubled


def test_numbers_that_are_not_finite_say_nothing_of_a_kernel(monkeypatch):
    monkeypatch.setitem(sys.modules, KERNELS, SimpleNamespace(double=lambda x, kernel: 2 * x))
    function = Either(doubled, "double")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function._faster(torch.full((3,), torch.inf), torch.ones(2)) is None


@pytest.mark.parametrize("milliseconds, taken", [(5.0, True), (9.4, True), (9.6, False), (20.0, False)])
def test_a_kernel_is_taken_where_it_is_faster(monkeypatch, milliseconds, taken):
    def kernel(x, kernel):
        return x + x

    monkeypatch.setitem(sys.modules, KERNELS, SimpleNamespace(double=kernel))
    monkeypatch.setattr(either, "_milliseconds", lambda form, given: milliseconds if form is kernel else 10.0)
    assert Either(doubled, "double")._faster(torch.ones(3), torch.ones(2)) is (kernel if taken else doubled)


def test_on_a_cpu_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(Either, "_faster", lambda *given: pytest.fail("measured"))
    function = Either(doubled, "double")
    assert_close(function(torch.ones(3), torch.ones(2)), torch.full((3,), 2.0))
    assert not function.chosen


# The kernels themselves, as Triton interprets them ---------------------------------------------------------------

INTERPRETED = """
import torch
from degp.execution import chains, narrow, triton_convolutions as kernels
from torch.testing import assert_close

for tiles in (kernels.FORWARD, kernels.GRADIENT, kernels.CHAIN):
    assert tuple(tiles) == narrow.CHANNELS
sizes = (3, 3, 3, 16, 32, 32), (5, 2, 5, 32, 16, 16), (9, 2, 2, 16, 5, 8), (9, 1, 2, 32, 3, 8), (2, 1, 4, 32, 3, 64)
for N, M, L, C, H, W in sizes:
    x, dy = torch.randn(2, N, H, W, M * C)
    stack = torch.randn(M, L, C, 3, 3, C) / (9 * C) ** 0.5
    first = stack[:, 0]
    assert_close(kernels.chain(x, stack), chains.one_by_one(x, stack), rtol=1e-4, atol=1e-4)
    for adjoint in (False, True):
        assert_close(kernels.narrow(x, first, adjoint), narrow.plain(x, first, adjoint), rtol=1e-4, atol=1e-4)
    found = kernels.kernel_gradient(x, dy, first)
    assert_close(found, narrow.plain_gradient(x, dy, first), rtol=1e-4, atol=1e-3)
    assert found.is_contiguous()  # as torch.compile has been told
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="there is no Triton")
def test_the_kernels_as_triton_interprets_them():
    path = os.pathsep.join((str(Path(narrow.__file__).parents[2]), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", INTERPRETED], check=True, env=environment)
