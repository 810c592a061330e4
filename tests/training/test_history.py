"""The history has the mean loss of each epoch by itself."""

import torch
from torch import nn

from degp import Batch, Ensemble, Gaussian, fit, methods


def test_every_epoch_has_the_mean_loss_of_its_own_batches():
    """With a learning rate of 0 and full batches, all epochs have the same loss."""
    data = Batch(torch.arange(6.0)[:, None], torch.ones(6, 1))
    ensemble = Ensemble(lambda: nn.Linear(1, 1), 2)
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.0)
    history = fit(ensemble, data, methods.de(Gaussian(1.0)), epochs=3, optimizer=optimizer)
    assert len(set(history.column("loss"))) == len(set(history.column("data"))) == 1
