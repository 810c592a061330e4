"""The parts of an ensemble hold every weight once, stacked, separate or shared."""

import pytest
from torch import nn

from degp import Ensemble
from degp.nets import mlp

M = 3


def test_parts_hold_every_weight_once():
    ensemble = Ensemble(lambda: nn.Linear(4, 2), M, backbone=nn.Linear(3, 4))
    stacked, shared = ensemble.parts()
    assert (stacked.members, stacked.shared_by, shared.members, shared.shared_by) == (M, 1, None, M)
    assert [stacked.architecture.get_parameter(n).shape for n in stacked.parameters] == [(2, 4), (2,)]
    held = [id(p) for part in (stacked, shared) for p in part.parameters.values()]
    assert sorted(held) == sorted(id(p) for p in ensemble.parameters())


def test_mixed_members_are_one_part_each():
    with pytest.warns(UserWarning, match="one after the other"):
        ensemble = Ensemble([mlp(3, [4], 2), mlp(3, [], 2)])
    assert [(part.members, part.shared_by, len(part.parameters)) for part in ensemble.parts()] == [
        (None, 1, 4),
        (None, 1, 2),
    ]
