"""Members of one architecture are stacked; any difference between them keeps them separate, with the reason."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from degp import Ensemble
from degp.nets import mlp
from degp.runtime.execution import Loop, Vmap
from tests.ensemble.networks import NETS, POINTS, M, loop, separate


class Branch(nn.Module):
    """A layer with plain attributes: `act` is called, `number` multiplies."""

    def __init__(self, act=torch.tanh, number=1.0):
        super().__init__()
        self.head, self.act, self.number = nn.Linear(3, 2), act, number

    def forward(self, x):
        return self.act(self.head(x)) * torch.as_tensor(np.asarray(self.number).sum())


@pytest.mark.parametrize(
    "members, reason",
    [
        ([mlp(3, [4], 2), mlp(3, [5], 2)], "member 1 is built differently from member 0"),
        ([nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)], r"member 1 has bias as \(2,\) torch.float32 and"),
        ([nn.Flatten(), nn.Flatten()], "they have no parameters to stack"),
    ],
    ids=["widths", "frozen", "nothing to stack"],
)
def test_mixed_members_run_in_a_loop_with_the_reason(members, reason):
    with pytest.warns(UserWarning, match=f"^members run one after the other, because {reason}") as raised:
        ensemble = Ensemble(members)
    assert len(raised) == 1
    assert_close(ensemble(POINTS.float()), loop(members, POINTS.float()), rtol=0, atol=0)
    trained = [parameter.requires_grad for member in members for parameter in member.parameters()]
    assert [parameter.requires_grad for parameter in ensemble.parameters()] == trained


def scaled_by(number):
    return lambda x: x * number


DIFFERENT = {
    "number": ({"number": 1.0}, {"number": 2.0}),
    "list": ({"number": [1.0, 2.0]}, {"number": [1.0, 3.0]}),
    "array": ({"number": np.ones(2)}, {"number": np.zeros(2)}),
    "tensor": ({"number": torch.ones(2)}, {"number": torch.zeros(2)}),
    "tuple of tensors": ({"number": (torch.ones(1), torch.ones(1))}, {"number": (torch.ones(1), torch.zeros(1))}),
    "function": ({"act": torch.tanh}, {"act": torch.sin}),
    "closure": ({"act": scaled_by(1)}, {"act": scaled_by(2)}),
    "default": ({"act": lambda x, k=1: x * k}, {"act": lambda x, k=2: x * k}),
    "partial": ({"act": partial(F.leaky_relu, negative_slope=0.1)}, {"act": partial(F.leaky_relu, negative_slope=0.2)}),
    "module": ({"act": nn.LeakyReLU(0.1)}, {"act": nn.LeakyReLU(0.2)}),
    "method": ({"act": partial(scaled_by(1).__call__)}, {"act": partial(scaled_by(2).__call__)}),
}


@pytest.mark.parametrize("one, other", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_members_that_differ_in_a_plain_attribute_are_not_stacked(one, other):
    members = [Branch(**one), Branch(**other)]
    with pytest.warns(
        UserWarning, match="because member 1 (has other settings than|is built differently from) member 0"
    ):
        ensemble = Ensemble(members)
    assert_close(ensemble(POINTS.float()), loop(members, POINTS.float()), rtol=0, atol=0)


def test_members_that_differ_in_a_hook_are_not_stacked():
    members = [nn.Linear(3, 2), nn.Linear(3, 2)]
    members[1].register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    with pytest.warns(UserWarning, match="member 1 has other settings than member 0 in its outermost module"):
        ensemble = Ensemble(members)
    assert_close(ensemble(POINTS.float()), loop(members, POINTS.float()), rtol=0, atol=0)


ALIKE = {
    "closure": lambda: Branch(scaled_by(2)),
    "partial": lambda: Branch(partial(F.leaky_relu, negative_slope=0.1)),
    "list": lambda: Branch(number=[1.0, 2.0]),
    "array": lambda: Branch(number=np.ones(2)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
}


@pytest.mark.parametrize("make", ALIKE.values(), ids=ALIKE.keys())
def test_members_with_equal_attributes_are_stacked(make):
    members = [make() for _ in range(M)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ensemble = Ensemble(members, execution=Vmap())
    assert ensemble.stacked is not None
    assert_close(ensemble(POINTS.float()), loop(members, POINTS.float()))


def test_statistics_alone_can_be_stacked():
    members = [nn.BatchNorm1d(3, affine=False).double().eval() for _ in range(M)]
    for index, member in enumerate(members):
        member.running_mean.fill_(index)
    for strategy in (Vmap(), Loop()):
        assert_close(Ensemble(members, execution=strategy)(POINTS), loop(members, POINTS))


@pytest.mark.parametrize("name", NETS)
def test_to_modules_gives_independent_copies(name):
    modules, inputs = separate(name), NETS[name][1]
    back = Ensemble(modules).eval().to_modules()
    expected = [copy.deepcopy(m.state_dict()) for m in modules]
    assert_close([dict(m.state_dict()) for m in back], [dict(state) for state in expected], rtol=0, atol=0)
    assert_close(loop(back, inputs), loop([m.eval() for m in modules], inputs), rtol=0, atol=0)
    with torch.no_grad():
        for parameter in back[0].parameters():
            parameter.zero_()
    assert_close([dict(m.state_dict()) for m in modules], [dict(state) for state in expected], rtol=0, atol=0)
