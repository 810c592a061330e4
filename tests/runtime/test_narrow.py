"""Narrow convolutions of many networks: values, adjoint and gradients; and the Triton kernels, interpreted."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import degp
from degp import Ensemble
from degp.nets import resnet
from degp.runtime.execution import Compiled, Grouped, Loop, layers
from degp.runtime.kernels import narrow
from tests.fixtures import normal

convolve, kernel_gradient = torch.ops.degp.narrow, torch.ops.degp.narrow_kernel_gradient


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


def test_the_kernels_need_a_gpu_and_half_precision():
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
def test_the_operation_is_one_convolution_per_network(members, images, height, width):
    x, kernel = normal(images, height, width, members * 4), normal(members, 4, 3, 3, 4, seed=1)
    for own, k, y in zip(x.split(4, 3), kernel, convolve(x, kernel, False).split(4, 3), strict=True):
        assert_close(y, F.conv2d(own.permute(0, 3, 1, 2), k.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1))


@given(**sizes)
def test_the_adjoint_is_the_adjoint(members, images, height, width):
    x, y = normal(images, height, width, members * 2), normal(images, height, width, members * 2, seed=1)
    kernel = normal(members, 2, 3, 3, 2, seed=2)
    assert_close((y * convolve(x, kernel, False)).sum(), (convolve(y, kernel, True) * x).sum())


@pytest.mark.parametrize("adjoint", [False, True])
def test_gradients_equal_finite_differences(adjoint):
    x, kernel = normal(2, 3, 4, 6).requires_grad_(), normal(3, 2, 3, 3, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, kernel: convolve(x, kernel, adjoint), (x, kernel))
    assert torch.autograd.gradcheck(lambda x: convolve(x, kernel.detach(), adjoint), (x,))


def test_the_operations_pass_torchs_checks():
    x, dy, kernel = normal(2, 4, 5, 6).requires_grad_(), normal(2, 4, 5, 6), normal(3, 2, 3, 3, 2).requires_grad_()
    torch.library.opcheck(convolve.default, (x, kernel, False))
    torch.library.opcheck(kernel_gradient.default, (x.detach(), dy, kernel.detach()))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(layers, "has_kernel", lambda x, kernel: True)


def outcome(strategy, modules, inputs):
    ensemble = Ensemble(modules, execution=strategy).double()
    outputs = ensemble(inputs)
    return outputs, torch.autograd.grad(outputs.square().sum(), list(ensemble.parameters()))


def three_resnets():
    torch.manual_seed(0)
    return [resnet(8, 4) for _ in range(3)], normal(2, 3, 8, 8)


def test_members_by_the_operations_equal_the_loop(as_on_a_gpu):
    assert_close(*(outcome(strategy, *three_resnets()) for strategy in (Grouped(), Loop())))


@pytest.mark.compiled
def test_compiled_members_by_the_operations_equal_the_loop(as_on_a_gpu):
    assert_close(*(outcome(strategy, *three_resnets()) for strategy in (Compiled(Grouped()), Loop())))


# The kernels themselves, as Triton interprets them ---------------------------------------------------------------


INTERPRETED = """
import torch
from degp.runtime.kernels import chains, narrow, triton_convolutions as kernels
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
    assert found.is_contiguous()  # as register_fake tells torch.compile
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_triton_kernels_equal_pytorch_when_interpreted():
    path = os.pathsep.join((str(Path(degp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", INTERPRETED], check=True, env=environment)
