"""The history has the mean loss of each epoch by itself."""

import torch
from torch import nn

from degp import Batch, Ensemble, Gaussian, History, fit, methods
from degp.training import Ending


def test_every_epoch_has_the_mean_loss_of_its_own_batches():
    """With a learning rate of 0 and full batches, all epochs have the same loss."""
    data = Batch(torch.arange(6.0)[:, None], torch.ones(6, 1))
    ensemble = Ensemble(lambda: nn.Linear(1, 1), 2)
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.0)
    history = fit(ensemble, data, methods.de(Gaussian(1.0)), epochs=3, optimizer=optimizer)
    assert len(set(history.column("loss"))) == len(set(history.column("data"))) == 1


def test_two_runs_as_one_count_on():
    first = History([{"epoch": 1, "step": 5, "seconds": 2.0, "loss": 1.0}], Ending.CONVERGED, 10)
    second = History([{"epoch": 1, "step": 3, "seconds": 1.0, "loss": 0.5}], Ending.COMPLETE, 3)
    both = first.then(second)
    assert both.last == {"epoch": 2, "step": 8, "seconds": 3.0, "loss": 0.5}
    assert (both.ending, both.planned) == (Ending.COMPLETE, 13)
    cut = History(first.records, Ending.TIME, 10)
    assert cut.then(second).ending == second.then(cut).ending == Ending.TIME
