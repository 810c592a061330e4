"""Loaders, data sets and iterables train as the same points in one batch do, and resume where they stopped."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from degp import Batch, Categorical, Checkpoints, Ensemble, Gaussian, NonFiniteLossError, Plan, fit, methods, priors
from degp.runtime.execution import Vmap
from degp.training import Captured
from tests.fixtures import normal, seeded

X = normal(10, 3, dtype=torch.float32)
Y = X.sum(1, keepdim=True).sin()
DATASET = TensorDataset(X, Y)
METHOD = methods.degp(Gaussian(0.1), priors.NNGP(1), beta=0.1)


def made():
    torch.manual_seed(0)
    return Ensemble(lambda: nn.Linear(3, 1), 3, execution=Vmap())


def trained(data, *, plan=None, method=METHOD, **options):
    ensemble = made()
    plan = plan or Plan(2)
    history = fit(ensemble, data, method, plan, generator=seeded(), progress=False, **options)
    return dict(ensemble.state_dict()), history


def test_a_data_set_trains_as_its_tensors_do():
    expected, _ = trained(Batch(X, Y), plan=Plan(3, 4))
    assert_close(trained(DATASET, plan=Plan(3, 4))[0], expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["loader", "list", "batches", "iterable"])
def test_batches_know_the_population(kind):
    pairs = [(X[:5], Y[:5]), (X[5:], Y[5:])]
    data, options = {
        "loader": (DataLoader(DATASET, 5), {}),
        "list": (pairs, {}),
        "batches": ([Batch(*pair) for pair in pairs], {}),
        "iterable": (Repeatable(pairs), {"population": 10}),
    }[kind]
    ensemble = made()
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.01)
    for x, y in pairs * 2:  # by hand: two epochs in order
        optimizer.zero_grad()
        prepared = METHOD.prepare(x)
        METHOD.loss(ensemble(x), ensemble, Batch(x, y, 10), prepared).total.backward()
        optimizer.step()
    own = made()
    fit(own, data, METHOD, epochs=2, optimizer=torch.optim.SGD(own.parameters(), lr=0.01), progress=False, **options)
    assert_close(dict(own.state_dict()), dict(ensemble.state_dict()))


class Repeatable(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def shuffled(**options):
    return DataLoader(DATASET, 3, shuffle=True, **options)


def test_a_loaders_order_follows_the_generator_of_the_run():
    first, history = trained(shuffled())
    torch.manual_seed(123)
    torch.rand(5)
    again, _ = trained(shuffled())
    assert_close(again, first, rtol=0, atol=0)
    assert history.last["step"] == 2 * 4


def test_a_loader_changes_no_global_random_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    ensemble = made()
    torch.manual_seed(5)
    fit(ensemble, shuffled(), METHOD, epochs=2, generator=seeded(), progress=False)
    assert_close(torch.rand(3), expected, rtol=0, atol=0)


class Augmented(Dataset):
    """Points that are read with noise from torch's own random state."""

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return X[index] + 0.1 * torch.randn(3), Y[index]


class Stop(Exception):
    pass


class Interrupted(methods.DEGP):
    """Stops in the step after `steps` of them."""

    def __init__(self, steps):
        super().__init__(Gaussian(0.1), priors.NNGP(1), penalty=METHOD.penalty)
        self.left = steps

    def loss(self, *args, **options):
        if not self.left:
            raise Stop
        self.left -= 1
        return super().loss(*args, **options)


@pytest.mark.parametrize("every", [3, 4, 6])
@pytest.mark.parametrize("points", [DATASET, Augmented()], ids=["plain", "augmented"])
def test_an_interrupted_epoch_of_a_loader_resumes_with_the_batches_that_remain(points, every, tmp_path):
    """Batches that are done are read again, but their augmentation has been drawn already."""
    loader = DataLoader(points, 3, shuffle=True)
    expected, _ = trained(loader, plan=Plan(3))
    plan = Plan(3, checkpoints=Checkpoints(tmp_path, every=every), resume=True)
    with pytest.raises(Stop):
        trained(loader, plan=plan, method=Interrupted(every))
    resumed, _ = trained(loader, plan=plan, method=Interrupted(-1))
    assert_close(resumed, expected, rtol=0, atol=0)


@pytest.mark.parametrize("most, steps", [(3, 3), (5, 5), (9, 5), (11, 10)])
def test_epochs_have_about_the_batches_that_are_wanted(most, steps):
    """Fewer than the loader has, or several passes over it."""
    _, history = trained(DataLoader(DATASET, 2), plan=Plan(2, batches_per_epoch=most))
    assert history.column("step") == [steps, 2 * steps] and history.planned == 2 * steps


def test_passes_of_an_epoch_have_different_orders():
    seen = []

    class Recorder(methods.DEGP):
        def loss(self, outputs, weights, batch, prepared, **options):
            seen.append(batch.inputs)
            return super().loss(outputs, weights, batch, prepared, **options)

    plan, method = Plan(1, batches_per_epoch=8), Recorder(METHOD.likelihood, METHOD.prior)
    trained(shuffled(), plan=plan, method=method)
    first, second = torch.cat(seen[:4]), torch.cat(seen[4:])
    assert not torch.equal(first, second)
    assert_close(first[first[:, 0].argsort()], second[second[:, 0].argsort()], rtol=0, atol=0)


def test_a_stream_of_unknown_length_has_one_pass_per_epoch_and_no_planned_steps():
    _, history = trained(Repeatable([(X, Y)] * 3), plan=Plan(2, batches_per_epoch=9), population=10)
    assert history.column("step") == [3, 6] and history.planned == 0


def test_weights_of_a_streams_batches_are_those_of_the_points():
    w = torch.linspace(0.1, 2, 10)
    expected, _ = trained(Batch(X, Y, weights=w), plan=Plan(3))
    assert_close(trained([Batch(X, Y, weights=w)], plan=Plan(3))[0], expected)
    with pytest.raises(ValueError, match=r"weights must be finite and not negative, but 10 of 10 are not"):
        trained([Batch(X, Y, weights=-w)])


def test_validation_may_come_in_batches():
    data = Batch(X, Y)
    whole = trained(data, validation=data, method=methods.de(Gaussian(0.1)))[1].last
    parts = trained(data, validation=DataLoader(DATASET, 4), method=methods.de(Gaussian(0.1)))[1].last
    assert parts["validation/loss"] == pytest.approx(whole["validation/loss"])


def test_streams_that_cannot_train_are_refused():
    with pytest.raises(ValueError, match="a DataLoader has batches already, but batch_size is 4; leave it out"):
        trained(shuffled(), plan=Plan(1, 4))
    with pytest.raises(ValueError, match="number of training points must be known"):
        trained(Repeatable([(X, Y)]))
    with pytest.raises(ValueError, match="at least one batch of data, but the first pass gave none"):
        trained(Repeatable([]), population=5)
    with pytest.raises(ValueError, match="the data gave none in epoch 2; a generator can be read only once"):
        trained(OnlyOnce([(X, Y)] * 2), population=10)


class OnlyOnce:
    """Gives its items in two passes, one of them the example's, and then nothing."""

    def __init__(self, items):
        self.items, self.passes = items, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.items if self.passes <= 2 else [])


def test_a_captured_step_of_a_stream_runs_eagerly_and_says_so():
    with pytest.warns(UserWarning, match="steps run eagerly, because only data that stay on the GPU"):
        trained(shuffled(), plan=Plan(1, stepping=Captured()))


def test_a_batch_of_a_stream_that_is_not_finite_ends_training():
    spoilt = [(X, Y), (X * torch.nan, Y)]
    with pytest.raises(NonFiniteLossError, match="step 2: the inputs are not finite; no checkpoint was saved"):
        trained(spoilt)


def test_targets_are_checked_as_they_are_read():
    spoilt = [(X, Y), (X, Y / 0)]
    with pytest.raises(NonFiniteLossError, match=r"step 2: the targets are not finite; .*; drop these points, or fill"):
        trained(spoilt)
    labels = [(X, torch.zeros(10).long()), (X, torch.full((10,), 7))]
    ensemble = Ensemble(lambda: nn.Linear(3, 2), 3, execution=Vmap())
    for data in (labels, Points(labels)):
        with pytest.raises(ValueError, match=r"labels must lie in 0 … 1, since .*, but they reach from (0|7) to 7"):
            fit(ensemble, data, methods.de(Categorical()), Plan(1, 2 if isinstance(data, Points) else None))


class Points(Dataset):
    """The points of some batches, one by one."""

    def __init__(self, batches):
        self.items = [(x, y) for batch in batches for x, y in zip(*batch, strict=True)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_read_the_same_batches(workers):
    loader = DataLoader(DATASET, 3, shuffle=True, num_workers=workers)
    assert_close(trained(loader)[0], trained(shuffled())[0], rtol=0, atol=0)


def test_validation_may_be_a_stream_of_unknown_length():
    data, method = Batch(X, Y), METHOD
    whole = trained(data, validation=data, method=method)[1].last
    stream = trained(data, validation=Repeatable([(X, Y)]), method=method)[1].last
    assert stream["validation/loss"] == pytest.approx(whole["validation/loss"])
    with pytest.raises(ValueError, match="read after each epoch, but a generator can be read only once"):
        trained(data, validation=((X, Y) for _ in range(2)))
    with pytest.raises(ValueError, match="validation must have at least one point, but the data gave none"):
        trained(data, validation=[])
