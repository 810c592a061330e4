"""LeNet has BatchNorm, and the prior's network is the same without it."""

import torch
from torch import nn

from degp.nets import lenet, lenet_features


def layers(network, kind):
    return [(tuple(layer.weight.shape)) for layer in network.modules() if isinstance(layer, kind)]


def test_the_network_has_batchnorm_and_the_priors_has_none():
    assert layers(lenet(), nn.BatchNorm2d) == [(32,), (64,)]
    assert layers(lenet_features(), nn.BatchNorm2d) == []


def test_both_have_the_same_convolutions():
    assert layers(lenet(), nn.Conv2d) == layers(lenet_features(), nn.Conv2d)
    images = torch.zeros(2, 1, 28, 28)
    assert (lenet(7)(images).shape, lenet_features()(images).shape) == ((2, 7), (2, 256))
