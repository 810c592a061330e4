"""Clipping treats each member as it would be treated by itself, and shared weights as M of them."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Batch, Ensemble, Gaussian, Plan, fit, methods
from degp.training.clipping import clip_gradients
from tests.fixtures import normal, seeded

M = 3
X = normal(8, 3, dtype=torch.float32)


def scales(max_norm, *, backbone=None):
    """Each member's gradient, of sizes 1, 2 and 3, before and after clipping."""
    ensemble = Ensemble(lambda: nn.Linear(3, 2), M, backbone=backbone)
    sizes = torch.arange(1.0, M + 1)
    for parameter in ensemble.own_parameters():
        parameter.grad = torch.ones_like(parameter) * sizes.view(-1, *[1] * (parameter.ndim - 1)) / 8**0.5
    for parameter in ensemble.shared_parameters():
        parameter.grad = torch.ones_like(parameter)
    clip_gradients(ensemble, max_norm)
    return ensemble


def test_each_member_is_clipped_by_itself():
    ensemble = scales(2.0)
    norms = torch.stack([p.grad.flatten(1).square().sum(1) for p in ensemble.own_parameters()]).sum(0).sqrt()
    assert_close(norms, torch.tensor([1.0, 2.0, 2.0]))


def test_shared_weights_are_clipped_by_the_bound_of_all_members():
    backbone = nn.Linear(3, 3)  # twelve weights, a gradient of norm √12
    assert_close(scales(0.5, backbone=backbone).backbone.weight.grad.norm() ** 2, torch.tensor(1.5**2 * 9 / 12))
    assert_close(scales(2.0, backbone=nn.Linear(3, 3)).backbone.weight.grad, torch.ones(3, 3))


@pytest.mark.filterwarnings("ignore:members run one after the other")
def test_training_equals_members_clipped_by_torch():
    torch.manual_seed(0)
    networks = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(M)]
    mixed = [*networks[:2], nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))]
    data = Batch(X, 10 * X[:, :1])
    for members in (networks, mixed):
        ensemble = Ensemble(members)
        optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.1)
        plan = Plan(3, max_norm=0.5)
        fit(ensemble, data, methods.de(Gaussian(1.0)), plan, optimizer=optimizer, generator=seeded(), progress=False)
        for network, result in zip(copy.deepcopy(members), ensemble, strict=True):
            own = torch.optim.SGD(network.parameters(), lr=0.1)
            for _ in range(3):
                own.zero_grad()
                (0.5 * (network(X) - data.targets).square().mean()).backward()
                nn.utils.clip_grad_norm_(network.parameters(), 0.5)
                own.step()
            assert_close(dict(result.state_dict()), dict(network.state_dict()), rtol=1e-4, atol=1e-5)


def test_a_bound_must_be_positive():
    with pytest.raises(ValueError, match=r"max_norm must be positive, but it is 0\.0; None does not clip"):
        Plan(1, max_norm=0.0)
