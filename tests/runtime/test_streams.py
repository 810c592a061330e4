"""A side stream changes when work runs, never its result; on a CPU it runs in order."""

import pytest
import torch
from torch.testing import assert_close

from degp.runtime.streams import SideStream


def test_side_work_gives_the_same_values_and_gradients():
    x = torch.arange(3.0, requires_grad=True)
    side = SideStream(x)
    with side.using(x):
        squares = x.square().sum()
    cubes = x.pow(3).sum()
    side.join(squares)
    (gradient,) = torch.autograd.grad(squares + cubes, x)
    assert_close(gradient, 2 * x.detach() + 3 * x.detach().square())


def test_errors_of_side_work_are_raised():
    with pytest.raises(KeyError), SideStream(torch.zeros(1)).using():
        raise KeyError
