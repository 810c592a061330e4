"""Convolutions rewritten for tensor cores, as products or by blocks, are the same convolutions."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from degp.runtime.execution.layers import Convolution, as_product, strided_by_blocks


@pytest.mark.parametrize("size", [7, 8, 11])
@pytest.mark.parametrize("k, stride, padding", [(3, 2, 1), (1, 2, 0), (5, 2, 2), (3, 3, 0), (4, 3, 1), (2, 2, 0)])
def test_a_strided_convolution_by_blocks_is_that_convolution(k, stride, padding, size):
    generator = torch.Generator().manual_seed(0)
    x, kernel, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 6, size, size + 2), (9, 2, k, k), (9,))
    )
    blocks = strided_by_blocks(x, kernel, bias, stride, padding, groups=3)
    assert_close(blocks, F.conv2d(x, kernel, bias, stride, padding, groups=3))


def test_many_channels_to_few_by_blocks_is_the_same_convolution():
    generator = torch.Generator().manual_seed(0)
    x, kernel, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((2, 48, 8, 8), (96, 16, 3, 3), (96,))
    )
    x.requires_grad_()
    blocks, plain = strided_by_blocks(x, kernel, bias, 2, 1, groups=3), F.conv2d(x, kernel, bias, 2, 1, groups=3)
    assert_close(blocks, plain)
    assert_close(*(torch.autograd.grad(y.square().sum(), x) for y in (blocks, plain)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "channels, k, stride, padding", [(3, 3, 1, 1), (1, 5, 1, 2), (1, 5, 1, 0), (3, 4, 3, 1), (8, 1, 2, 0)]
)
def test_a_convolution_of_few_channels_as_a_product_is_that_convolution(channels, k, stride, padding, bias):
    generator = torch.Generator().manual_seed(0)
    x, kernel, shift = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((2, channels, 7, 9), (5, channels, k, k), (5,))
    )
    shift = shift if bias else None
    product, plain = as_product(x, kernel, shift, stride, padding), F.conv2d(x, kernel, shift, stride, padding)
    assert_close(product, plain)
    wanted = [value for value in (x, kernel, shift) if value is not None]
    assert_close(*(torch.autograd.grad(y.square().sum(), wanted) for y in (product, plain)))


@pytest.mark.parametrize(
    "few, layer",
    [
        (True, nn.Conv2d(3, 16, 3, padding=1)),
        (True, nn.Conv2d(1, 6, 5)),
        (False, nn.Conv2d(16, 16, 3, padding=1)),
        (False, nn.Conv2d(3, 16, 3, padding=1, dilation=2)),
        (False, nn.Conv2d(3, 16, (3, 1))),
        (False, nn.Conv2d(3, 16, 3, padding="same")),
    ],
)
def test_which_convolutions_are_products(few, layer):
    assert Convolution("layer", layer, shared=True).has_small_windows is few
    assert not Convolution("layer", layer, shared=False).has_small_windows
