"""Gradients of ranks are combined: members over replicas, the backbone summed over blocks, the method over all."""

import torch
from torch import nn
from torch.testing import assert_close

from degp import Ensemble, Gaussian, methods
from degp.training.averaging import average_gradients


class Ranks:
    """A group of ranks, of which all others have gradients of zero."""

    def __init__(self, size):
        self.size, self.alone = size, size == 1

    def mean(self, tensors, weight):
        return [tensor / self.size for tensor in tensors]


class TwoByThree:
    """Two replicas of an ensemble in three blocks each."""

    world, replicas, members = Ranks(6), Ranks(2), Ranks(3)


def test_the_backbones_gradient_is_the_sum_over_blocks_and_the_mean_over_replicas():
    ensemble = Ensemble(lambda: nn.Linear(4, 2), 3, backbone=nn.Linear(3, 4))
    method = methods.de(Gaussian(learned=True))
    parts = [list(part.parameters()) for part in (ensemble.stacked, ensemble.backbone, method)]
    for parameter in (p for part in parts for p in part):
        parameter.grad = torch.ones_like(parameter)
    ensemble.mesh = TwoByThree()
    average_gradients(ensemble, method, num_points=5)
    for part, expected in zip(parts, (1 / 2, 3 / 6, 1 / 6), strict=True):
        for parameter in part:
            assert_close(parameter.grad, torch.full_like(parameter, expected))
