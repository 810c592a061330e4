"""Compiled strategies and modules compute the same, and compiling a module is undone."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp.runtime.execution import Compiled, CompiledForTraining, Grouped, by_name, compiled_forward


@pytest.mark.parametrize("strategy", [Grouped(), Compiled(Grouped()), CompiledForTraining(Grouped())])
def test_strategies_are_found_by_their_name(strategy):
    assert by_name(strategy.name) == strategy
    assert by_name(strategy.name.replace("grouped", "folded")) == strategy  # of older checkpoints


def test_a_strategy_of_the_users_own_has_no_name():
    assert by_name("my own") is by_name(None) is None


@pytest.mark.compiled
def test_a_module_runs_compiled_within_a_block():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()).double()
    other, x = copy.deepcopy(backbone), torch.randn(5, 3, dtype=torch.float64)
    with compiled_forward(backbone):
        inside = backbone(x)
    inside.sum().backward()
    expected = other(x)
    expected.sum().backward()
    assert_close(inside, expected)
    assert_close(backbone[0].weight.grad, other[0].weight.grad)
    assert_close(backbone.state_dict(), other.state_dict())
    assert "forward" not in vars(backbone)
    with pytest.raises(KeyError), compiled_forward(backbone):
        raise KeyError
    assert "forward" not in vars(backbone)
    with compiled_forward(backbone):
        outer = backbone.forward
        with compiled_forward(backbone):
            assert backbone.forward is not outer
        assert backbone.forward is outer
    assert "forward" not in vars(backbone)
