"""Duals are expected products of activations, and the differentiable forms have their gradients."""

import pytest
import torch

from degp.priors.duals import differentiable_relu, erf, relu
from tests import reference

DUALS = [(relu, torch.relu), (differentiable_relu, torch.relu), (erf, torch.erf)]


@pytest.mark.parametrize("left, right, cross", [(1.0, 1.0, 0.0), (2.0, 0.5, 0.9), (0.3, 1.7, -0.6), (1.0, 1.0, 1.0)])
@pytest.mark.parametrize("dual, activation", DUALS)
def test_dual_is_the_expected_product_of_activations(dual, activation, left, right, cross):
    closed = dual(*(torch.tensor([[value]], dtype=torch.float64) for value in (cross, left, right)))
    assert closed.item() == pytest.approx(reference.dual(activation, left, right, cross), abs=2e-5)


@pytest.mark.parametrize("dual", [differentiable_relu, erf])
def test_gradients_are_those_of_finite_differences(dual):
    covariance = torch.tensor([[0.9, -0.3, 0.0], [0.2, 0.5, -0.4]], dtype=torch.float64).requires_grad_()
    left = torch.tensor([[2.0], [0.5]], dtype=torch.float64).requires_grad_()
    right = torch.tensor([[1.0, 0.7, 1.3]], dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(dual, (covariance, left, right))


@pytest.mark.parametrize("dual, activation", DUALS)
def test_the_variance_of_an_activation_is_exact(dual, activation):
    """Where both arguments are one, which leaves the arc-cosine without a slope."""
    v = torch.tensor([0.5, 3.0], dtype=torch.float64)
    expected = [reference.dual(activation, value, value, value) for value in v.tolist()]
    assert dual(v, v, v).tolist() == pytest.approx(expected, abs=1e-4)
