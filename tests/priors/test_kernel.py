"""Kernels of any origin are priors."""

import re

import gpytorch
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp.priors import NNGP, KernelPrior, MonteCarloNNGP, as_prior
from tests.fixtures import normal


def test_gpytorch_kernel_is_a_prior():
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    x, y = normal(4, 3), normal(5, 3, seed=1)
    length, scale = kernel.base_kernel.lengthscale.item(), kernel.outputscale.item()
    gram = as_prior(kernel).kernel()(x, y)
    assert_close(gram, scale * torch.exp(-0.5 * torch.cdist(x, y).square() / length**2))
    assert not gram.requires_grad


def test_a_prior_is_left_unchanged():
    for prior in (NNGP(1), MonteCarloNNGP(nn.Linear(3, 2)), KernelPrior(lambda x, y: x @ y.T)):
        assert as_prior(prior) is prior


def test_a_number_is_no_prior():
    with pytest.raises(TypeError, match=re.escape("be a kernel function k(x, x'), but it is 2.0; use for example")):
        as_prior(2.0)
