"""Multilayer perceptrons have the layers that they are asked for."""

import pytest
import torch
from torch import nn

from degp.nets import mlp, mlp_features


@pytest.mark.parametrize("widths", [[], [5], [5, 4]])
def test_features_are_the_network_without_its_readout(widths):
    network, features = mlp(3, widths, 2), mlp_features(3, widths)
    assert str(nn.Sequential(*list(network)[:-1])) == str(features)
    assert network(torch.ones(7, 3)).shape == (7, 2)


@pytest.mark.parametrize("output_bias", [True, False])
def test_the_readout_has_a_bias_if_it_should(output_bias):
    readout = mlp(3, [5], 2, output_bias=output_bias)[-1]
    assert (readout.bias is not None) == output_bias
