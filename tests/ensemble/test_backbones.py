"""A cut is plain data: it makes the same backbone of any network of its architecture."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp.ensemble.backbones import Cut, bare
from degp.ensemble.unpacking import Unpacked
from tests.fixtures import normal

X = normal(6, 4, dtype=torch.float32)


class Net(nn.Module):
    """Two layers and a softmax, in a record."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return {"scores": self.head(self.body(x).tanh()).softmax(1)}


CUT = Cut("network.head", is_end=False, output="scores")


@pytest.mark.parametrize(
    "wrap", [lambda network: network, nn.DataParallel, lambda network: Unpacked(network, "scores")]
)
def test_a_network_is_cut_whatever_wraps_it(wrap):
    network = Net()
    assert_close(CUT.backbone(wrap(network))(X), network.body(X).tanh())
    assert bare(nn.DataParallel(network)) is network


def test_a_backbone_shares_the_weights_and_leaves_the_network_alone():
    network = Net()
    before = copy.deepcopy(network.state_dict())
    backbone = CUT.backbone(network)
    backbone(X)
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters()) and network.training
    assert_close(network.state_dict(), before, rtol=0, atol=0)
    assert backbone.network.network.body.weight.data_ptr() == network.body.weight.data_ptr()


def test_other_architectures_are_refused():
    with pytest.raises(ValueError, match=r"with a layer 'network\.head', but this Linear has none; pass the same arch"):
        CUT.backbone(nn.Linear(4, 3))
