"""One step changes the weights of every optimiser once, and of none if the loss is not finite."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Batch, Ensemble, Gaussian, methods
from degp.training import NonFiniteLossError, TrainState
from degp.training.step import require_finite, train_step, unchecked

DATA = Batch(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [5.0]]), population=2)


def state():
    torch.manual_seed(0)
    ensemble, method = Ensemble(lambda: nn.Linear(1, 1), 2), methods.de(Gaussian(0.5, learned=True))
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (ensemble, method)]
    return TrainState(ensemble, method, optimizers, [], torch.Generator())


def step(run, batch=DATA, inspect=unchecked):
    prepared = run.method.prepare(batch.inputs)
    return train_step(run, batch, prepared, generator=run.generator, inspect=inspect)


def weights(run):
    return [p.detach().clone() for p in (*run.ensemble.parameters(), *run.method.parameters())]


def test_every_optimizer_takes_a_step_along_the_gradient():
    run = state()
    before = weights(run)
    methods.batch_loss(run.ensemble, DATA, run.method).total.backward()
    expected = [
        old - 0.1 * p.grad
        for old, p in zip(before, (*run.ensemble.parameters(), *run.method.parameters()), strict=True)
    ]
    step(run)
    assert_close(weights(run), expected)


def test_gradients_do_not_accumulate():
    one, two = state(), state()
    step(one)
    for optimizer in two.optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.full_like(parameter, 100.0)
    step(two)
    assert_close(weights(one), weights(two))


def test_a_loss_that_is_not_finite_changes_no_weights():
    run = state()
    before = weights(run)
    with pytest.raises(NonFiniteLossError, match="not finite in data, total"):
        step(run, Batch(DATA.inputs, torch.full((2, 1), torch.inf)), inspect=require_finite)
    assert_close(weights(run), before, rtol=0, atol=0)
