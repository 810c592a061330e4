"""Residual blocks add their shortcut, and the prior's network has none."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from degp.nets import lite_resnet_features, resnet_features
from degp.nets.resnets import Residual


def silenced(block):
    """The block with an inner branch of zero."""
    nn.init.zeros_(block.norm2.weight)
    return block.eval()


def test_a_block_without_inner_branch_is_its_shortcut():
    x = torch.randn(2, 4, 6, 6)
    assert_close(silenced(Residual(4, 4, 1))(x), F.relu(x))


def test_a_shortcut_strides_over_pixels_and_pads_channels():
    x = torch.randn(2, 4, 6, 6)
    padded = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))
    assert_close(silenced(Residual(4, 8, 2))(x), F.relu(padded))


def test_the_priors_network_has_the_same_convolutions_without_batchnorm():
    def shapes(network):
        return [tuple(layer.weight.shape) for layer in network.modules() if isinstance(layer, nn.Conv2d)]

    lite = lite_resnet_features(20)
    assert shapes(lite) == shapes(resnet_features(20))
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in lite.modules())
