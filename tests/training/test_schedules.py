"""Schedulers count epochs or steps, and `ReduceLROnPlateau` follows the validation loss."""

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau
from torch.testing import assert_close

from degp import Batch, Checkpoints, EachStep, Ensemble, Gaussian, Plan, fit, methods
from degp.runtime.execution import Vmap
from tests.fixtures import normal, seeded

X = normal(8, 3, dtype=torch.float32)
DATA = Batch(X, X[:, :1])


def run(schedule, *, epochs=3, validation=None, checkpoints=None):
    """The learning rates at the ends of the epochs, and the last."""
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: nn.Linear(3, 1), 2, execution=Vmap())
    optimizer = SGD(ensemble.parameters(), lr=1.0)
    plan = Plan(epochs, 4, checkpoints=checkpoints, resume=True)
    options = {"validation": validation, "generator": seeded(), "progress": False}
    method = methods.de(Gaussian(100.0))
    history = fit(ensemble, DATA, method, plan, optimizer=optimizer, scheduler=schedule(optimizer), **options)
    return history.column("learning_rate"), optimizer.param_groups[0]["lr"], dict(ensemble.state_dict())


def halved(optimizer):
    return LambdaLR(optimizer, lambda count: 0.5**count)


def test_a_scheduler_counts_epochs_or_steps():
    assert run(halved)[:2] == ([1.0, 0.5, 0.25], 0.125)
    assert run(lambda optimizer: EachStep(halved(optimizer)))[:2] == ([0.25, 0.0625, 0.015625], 0.015625)
    both = run(lambda optimizer: [EachStep(LambdaLR(optimizer, lambda count: 1.0)), halved(optimizer)])
    assert both[1] == 0.125


def test_the_plateau_of_the_validation_loss_decides():
    def plateau(optimizer):
        return ReduceLROnPlateau(optimizer, factor=0.1, patience=0, threshold=0.0)

    constant = run(plateau, validation=lambda ensemble: {"loss": 1.0})[0]
    assert_close(constant, [1.0, 1.0, 0.1])
    assert run(plateau)[0] == [1.0, 1.0, 1.0]  # the training loss still falls


def test_schedulers_of_steps_resume(tmp_path):
    def schedule(optimizer):
        return EachStep(halved(optimizer))

    expected = run(schedule, epochs=4)
    run(schedule, epochs=2, checkpoints=Checkpoints(tmp_path))
    resumed = run(schedule, epochs=4, checkpoints=Checkpoints(tmp_path))
    assert resumed[:2] == expected[:2]
    assert_close(resumed[2], expected[2], rtol=0, atol=0)


def test_a_plateau_is_judged_once_per_epoch():
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    with pytest.raises(ValueError, match=r"must not need a score, but ReduceLROnPlateau does, .*; pass it without"):
        EachStep(ReduceLROnPlateau(optimizer))


def test_a_scheduler_of_another_optimizer_is_refused():
    other = SGD(nn.Linear(3, 1).parameters(), lr=1.0)
    for schedule in (halved(other), EachStep(halved(other))):
        with pytest.raises(ValueError, match="of this run, but LambdaLR has another; pass the one"):
            run(lambda optimizer, schedule=schedule: schedule)
