"""A kernel of ours is used where it gives the same numbers faster; otherwise plain PyTorch, with a warning."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from degp.runtime.kernels import measured
from degp.runtime.kernels.measured import MeasuredKernel

KERNELS = "degp.runtime.kernels.triton_convolutions"


def doubled(x, kernel):
    return 2 * x


def test_a_kernel_that_fails_is_not_used():
    with pytest.warns(UserWarning, match="convolutions run in plain PyTorch, because our kernel cannot"):
        assert MeasuredKernel(doubled, "no such kernel")._faster(torch.ones(3), torch.ones(2)) is doubled


def test_a_kernel_with_other_results_is_not_used(monkeypatch):
    monkeypatch.setitem(sys.modules, KERNELS, SimpleNamespace(double=lambda x, kernel: 2.2 * x))
    with pytest.warns(UserWarning, match="its results are not those of PyTorch"):
        assert MeasuredKernel(doubled, "double")._faster(torch.ones(3), torch.ones(2)) is doubled


def test_values_that_are_not_finite_decide_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, KERNELS, SimpleNamespace(double=lambda x, kernel: 2 * x))
    function = MeasuredKernel(doubled, "double")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function._faster(torch.full((3,), torch.inf), torch.ones(2)) is None


@pytest.mark.parametrize("milliseconds, used", [(5.0, True), (9.4, True), (9.6, False), (20.0, False)])
def test_a_kernel_is_used_where_it_is_faster(monkeypatch, milliseconds, used):
    def kernel(x, kernel):
        return x + x

    monkeypatch.setitem(sys.modules, KERNELS, SimpleNamespace(double=kernel))
    monkeypatch.setattr(measured, "_milliseconds", lambda form, arguments: milliseconds if form is kernel else 10.0)
    assert MeasuredKernel(doubled, "double")._faster(torch.ones(3), torch.ones(2)) is (kernel if used else doubled)


def test_on_a_cpu_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(MeasuredKernel, "_faster", lambda *arguments: pytest.fail("measured"))
    function = MeasuredKernel(doubled, "double")
    assert_close(function(torch.ones(3), torch.ones(2)), torch.full((3,), 2.0))
    assert not function.chosen
