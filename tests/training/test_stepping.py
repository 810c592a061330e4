"""Eager steps transform the inputs of their rows, keep the population, and run in the given precision."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Batch, Ensemble, Gaussian, Plan, fit
from degp.measurement import BatchAndMeasurement, BatchPart, points_of
from degp.methods import DEGP, Memberwise
from degp.priors import NNGP, no_penalty
from degp.runtime.execution import Loop
from degp.training import Eager, TrainState
from degp.training.stepping import Timed
from tests.fixtures import seeded

DATA = Batch(torch.arange(6.0)[:, None], torch.arange(6.0)[:, None], weights=torch.arange(6.0) / 2.5)


class Recorder(Memberwise):
    """DE that records its batches and the precision of its outputs."""

    def __init__(self):
        super().__init__(Gaussian(1.0), no_penalty)
        self.seen = []

    def loss(self, outputs, weights, batch, prepared, *, generator=None):
        self.seen.append((batch, outputs.dtype))
        return super().loss(outputs, weights, batch, prepared, generator=generator)


def advance(rows, **options):
    """The batch of a step on these rows, and the precision of the networks."""
    ensemble, method = Ensemble(lambda: nn.Linear(1, 1), 2, execution=Loop()), Recorder()
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.0)
    state = TrainState(ensemble, method, [optimizer], [], torch.Generator().manual_seed(0))
    Eager(**options).start(state, DATA, len(rows))(torch.tensor(rows))
    return method.seen[0]


def test_the_transform_is_applied_to_the_rows_of_the_batch():
    batch, _ = advance([4, 1], transform=lambda inputs, generator: 10 * inputs)
    assert_close(batch.inputs, torch.tensor([[40.0], [10.0]]))
    assert_close(batch.targets, torch.tensor([[4.0], [1.0]]))


def test_batches_keep_the_population_and_their_weights():
    batch, _ = advance([4, 1])
    assert batch.population == 6
    assert_close(batch.weights, torch.tensor([4.0, 1.0]) / 2.5)


def test_networks_run_in_the_given_precision():
    assert advance([4, 1])[1] == torch.float32
    assert advance([4, 1], precision=torch.bfloat16)[1] == torch.bfloat16


class Points(DEGP):
    """DE-GP that records the points of its divergence."""

    def __init__(self, **options):
        super().__init__(Gaussian(1.0), NNGP(1), **options)
        self.seen = []

    def prepare(self, inputs, *, generator=None):
        points = points_of(self.domain, inputs, inputs[:0])
        self.seen.append(frozenset(points.flatten().tolist()))
        return super().prepare(inputs, generator=generator)


@pytest.mark.parametrize("domain, accumulate", [(BatchPart(2), 1), (BatchAndMeasurement(), 3)])
def test_a_divergence_on_a_part_of_all_data_sees_other_points_at_each_step(domain, accumulate):
    """Data in one batch need no order; their parts do."""
    method, ensemble = Points(domain=domain), Ensemble(lambda: nn.Linear(1, 1), 2, execution=Loop())
    plan = Plan(6, stepping=Eager(accumulate=accumulate))
    fit(ensemble, DATA, method, plan, generator=seeded(), progress=False)
    assert {len(points) for points in method.seen} == {2} and len(set(method.seen)) > 3


def test_all_data_in_one_batch_keep_their_order():
    batch, _ = advance([3, 1, 0, 2, 5, 4])
    assert torch.equal(batch.inputs, DATA.inputs)


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_accumulated_gradients_are_those_of_the_parts(parts):
    """Σ_d (B_d / B) ℓ_d: for independent members the gradient of the whole batch."""

    def after(**options):
        torch.manual_seed(0)
        ensemble, method = Ensemble(lambda: nn.Linear(1, 1), 2, execution=Loop()), Recorder()
        optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.01)
        state = TrainState(ensemble, method, [optimizer], [], torch.Generator().manual_seed(0))
        loss = Eager(**options).start(state, DATA, 5)(torch.arange(5))
        return {"loss": loss.total, **loss.terms, **ensemble.state_dict()}, [len(batch) for batch, _ in method.seen]

    expected, _ = after()
    accumulated, sizes = after(accumulate=parts)
    assert sizes == {1: [5], 2: [3, 2], 3: [2, 2, 1], 9: [1] * 5}[parts]
    assert_close(accumulated, expected)


def test_parts_have_their_points_weights():
    ensemble, method = Ensemble(lambda: nn.Linear(1, 1), 2, execution=Loop()), Recorder()
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.0)
    state = TrainState(ensemble, method, [optimizer], [], torch.Generator())
    Eager(accumulate=2).start(state, DATA, 3)(torch.tensor([5, 0, 5]))
    assert [batch.weights.tolist() for batch, _ in method.seen] == [[2.0, 0.0], [2.0]]


def test_parts_are_counted_from_one():
    with pytest.raises(ValueError, match="accumulate is a number of parts and must be at least 1, but it is 0"):
        Eager(accumulate=0)


def test_timed_steps_are_the_same_steps_called_through_a_function():
    calls = []

    def call(work):
        calls.append("before")
        return work()

    def transform(inputs, generator):
        return 10 * inputs

    timed = Timed(Eager(transform, even=True), call)
    assert timed.transform is transform and timed.even
    ensemble, method = Ensemble(lambda: nn.Linear(1, 1), 2, execution=Loop()), Recorder()
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.0)
    step = timed.start(TrainState(ensemble, method, [optimizer], [], torch.Generator()), DATA, 2)
    assert not calls
    step(torch.tensor([4, 1]))
    assert_close(method.seen[0][0].inputs, torch.tensor([[40.0], [10.0]]))
    assert calls == ["before"]
