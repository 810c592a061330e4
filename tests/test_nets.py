"""Networks have the sizes of their papers."""

import pytest
from torch import nn

from degp.nets import resnet


def test_depths_of_resnets():
    assert sum(p.numel() for p in resnet(20, 10).parameters()) == 269_722
    assert sum(isinstance(layer, nn.Conv2d) for layer in resnet(56, 10).modules()) == 55
    with pytest.raises(ValueError, match="6n \\+ 2"):
        resnet(18, 10)
