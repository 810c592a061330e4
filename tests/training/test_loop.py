"""The training loop: resuming is exact, validation changes nothing, and neither does a bad step."""

import copy
import signal
import warnings
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, NAdam
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR, SequentialLR, StepLR

from degp import (
    BatchRegion,
    Categorical,
    Checkpoints,
    Ensemble,
    Gaussian,
    History,
    Loss,
    NonFiniteLossError,
    batch_loss,
    fit,
)
from degp.methods import Memberwise, de, degp, rde, rms
from degp.nets import mlp, mlp_features
from degp.priors import NNGP, MonteCarloNNGP
from degp.priors.penalty import no_penalty
from degp.runtime import progress
from degp.runtime.execution import Loop, Vmap
from degp.training import EarlyStopping, Ending, Plan, TrainState
from degp.training.checkpoints import CheckpointError
from degp.training.step import require_finite, train_step
from degp.typing import Batch

INPUTS = torch.randn(11, 3, generator=torch.Generator().manual_seed(0))
REAL = Batch(INPUTS, INPUTS.sin().sum(1, keepdim=True), population=11)
CLASSES = Batch(INPUTS, (INPUTS.sum(1) > 0).long())
EPOCHS, SIZE = 4, 4  # three batches per epoch: of 4, 4 and 3 points


@pytest.fixture(autouse=True)
def ctrl_c_raises():
    """As at a terminal; a test run in the background may have been told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@dataclass
class Setup:
    """All that a user makes before calling `fit`."""

    ensemble: Ensemble
    method: nn.Module
    optimizer: list
    scheduler: list
    data: Batch = REAL

    def fit(self, *, seed=1, **options):
        self.generator = torch.Generator().manual_seed(seed)
        validation = options.pop("validation", None)
        self.history = fit(
            self.ensemble,
            self.data,
            self.method,
            Plan(**{"epochs": EPOCHS, "batch_size": SIZE} | options),
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            validation=validation,
            generator=self.generator,
        )
        return self.history

    def bits(self):
        """Everything that training leaves behind, comparable bit for bit."""
        records = [{k: v for k, v in r.items() if k != "seconds"} for r in getattr(self, "history", History()).records]
        modules = [dict(module.state_dict()) for module in (self.ensemble, self.method)]
        stepped = [part.state_dict() for part in (*self.optimizer, *self.scheduler)]
        return as_bytes([modules, stepped, records, self.generator.get_state(), torch.get_rng_state()])


def as_bytes(tree):
    if isinstance(tree, torch.Tensor):
        return str(tree.dtype), tuple(tree.shape), tree.detach().numpy().tobytes()
    if isinstance(tree, dict):
        return {key: as_bytes(value) for key, value in tree.items()}
    return [as_bytes(value) for value in tree] if isinstance(tree, (list, tuple)) else repr(tree)


def setup(
    *,
    net=partial(mlp, 3, [6], 1),
    method=lambda ensemble: degp(Gaussian(0.1, learned=True), NNGP(1), alpha=0.5),
    optimizer=partial(Adam, lr=0.01),
    schedulers=(),
    backbone=lambda: None,
    execution=Vmap(),
):
    ensemble = Ensemble(net, 3, backbone=backbone(), execution=execution)
    goal = method(ensemble)
    first = optimizer([p for p in (*ensemble.parameters(), *goal.parameters()) if p.requires_grad])
    return Setup(ensemble, goal, [first], [make(first) for make in schedulers])


def two_optimizers():
    ensemble = Ensemble(partial(mlp, 3, [6], 2), 3, execution=Vmap())
    likelihood = Categorical(2.0, learned=True, num_draws=8)
    optimizers = [SGD(ensemble.parameters(), lr=0.05, momentum=0.9), Adam(likelihood.parameters(), lr=0.1)]
    schedulers = [StepLR(optimizers[0], 2), CosineAnnealingLR(optimizers[1], 7)]
    return Setup(ensemble, degp(likelihood, NNGP(1)), optimizers, schedulers, CLASSES)


def sequential(optimizer):
    return SequentialLR(optimizer, [LambdaLR(optimizer, lambda epoch: 0.5 + epoch), StepLR(optimizer, 1)], [2])


def dropout_net():
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))


def batchnorm_net():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def monte_carlo():
    return MonteCarloNNGP(mlp_features(3, [5]), num_draws=3)


SETUPS = {
    "sgd, cosine": partial(
        setup, optimizer=partial(SGD, lr=0.01, momentum=0.9), schedulers=[partial(CosineAnnealingLR, T_max=5)]
    ),
    "adam, steps": partial(setup, schedulers=[partial(StepLR, step_size=2)]),
    "nadam, weights of two precisions": partial(setup, optimizer=partial(NAdam, lr=0.01)),
    "two optimisers": two_optimizers,
    "milestones": partial(setup, schedulers=[partial(MultiStepLR, milestones=[1, 3, 3])]),
    "lambda": partial(setup, schedulers=[partial(LambdaLR, lr_lambda=lambda epoch: 0.9**epoch)]),
    "sequential": partial(setup, schedulers=[sequential]),
    "dropout by vmap": partial(setup, net=dropout_net),
    "dropout by loop": partial(setup, net=dropout_net, execution=Loop()),
    "batchnorm": partial(
        setup, net=batchnorm_net, method=lambda _: degp(Gaussian(), NNGP(1), measurement=BatchRegion(2), beta=0.1)
    ),
    "prior drawn at each step": partial(setup, method=lambda _: degp(Gaussian(), monte_carlo())),
    "prior drawn once": partial(setup, method=lambda _: degp(Gaussian(), monte_carlo().fixed())),
    "anchors": partial(setup, method=lambda ensemble: rms(Gaussian(), ensemble)),
    "backbone": partial(
        setup, net=partial(nn.Linear, 4, 1), backbone=lambda: mlp(3, [5], 4), method=lambda _: rde(Gaussian())
    ),
}


def seeded(make, seed=0):
    torch.manual_seed(seed)
    return make()


def before_step(method, number, act):
    """Acts when the method prepares the step of this number."""
    calls, prepare = [], method.prepare

    def watched(inputs, *, generator=None):
        calls.append(1)
        if len(calls) == number:
            act()
        return prepare(inputs, generator=generator)

    method.prepare = watched


def crash():
    raise OSError("the power fails")


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


def stop_after_an_epoch(run, folder):
    run.fit(epochs=2, checkpoints=Checkpoints(folder))


def stop_by_crash(run, folder):
    before_step(run.method, 8, crash)
    with pytest.raises(OSError, match="the power fails"):
        run.fit(checkpoints=Checkpoints(folder, every=5))


def stop_by_ctrl_c(run, folder):
    before_step(run.method, 5, press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        run.fit(checkpoints=Checkpoints(folder))


STOPS = {
    stop_after_an_epoch: "step-00000006-epoch-000002",
    stop_by_crash: "step-00000005-epoch-000001",
    stop_by_ctrl_c: "step-00000005-epoch-000001",  # the step under way was ended first
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")  # torch's own, of SequentialLR
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("make", SETUPS.values(), ids=SETUPS.keys())
def test_resuming_is_never_having_stopped(make, stop, tmp_path):
    whole = seeded(make)
    whole.fit()
    expected = whole.bits()

    stop(seeded(make), tmp_path)
    assert Checkpoints(tmp_path).newest().name == STOPS[stop]
    fresh = seeded(make, seed=99)
    fresh.fit(seed=98, checkpoints=Checkpoints(tmp_path), resume=True)
    assert fresh.bits() == expected


def test_training_depends_on_the_seed():
    runs = [seeded(SETUPS["adam, steps"]) for _ in range(3)]
    for run, seed in zip(runs, [1, 1, 2], strict=True):
        run.fit(seed=seed)
    assert runs[0].bits() == runs[1].bits() != runs[2].bits()


def draw_and_measure(ensemble):
    assert not ensemble.training and not torch.is_grad_enabled()
    return {"noise": torch.rand(()), "spread": ensemble(INPUTS).std()}


@pytest.mark.parametrize(
    "validation, columns",
    [
        (REAL, {"validation/loss", "validation/data", "validation/kl", "validation/penalty"}),
        (draw_and_measure, {"validation/noise", "validation/spread"}),
    ],
    ids=["data", "function"],
)
@pytest.mark.parametrize("name", ["dropout by vmap", "batchnorm", "prior drawn at each step"])
def test_validation_only_looks(name, validation, columns):
    alone = seeded(SETUPS[name])
    alone.fit()
    expected, watched = alone.bits(), seeded(SETUPS[name])
    history = watched.fit(validation=validation)
    for record in history.records:
        measured = {key: record.pop(key) for key in columns}
        assert all(isinstance(value, float) for value in measured.values())
    assert watched.bits() == expected


def test_validation_measures_in_evaluation_mode():
    run = seeded(SETUPS["dropout by vmap"])
    history = run.fit(epochs=1, validation=REAL)
    with torch.no_grad():
        loss = batch_loss(run.ensemble.eval(), REAL, run.method)
    assert history.last["validation/loss"] == float(loss.total)


def test_ctrl_c_during_validation_can_be_resumed(tmp_path):
    make = SETUPS["dropout by vmap"]
    presses = []

    def impatient(ensemble):
        torch.rand(1)
        presses.append(1)
        if len(presses) == 2:
            raise KeyboardInterrupt
        return {}

    whole = seeded(make)
    whole.fit()
    expected = whole.bits()
    with pytest.raises(KeyboardInterrupt):
        seeded(make).fit(validation=impatient, checkpoints=Checkpoints(tmp_path))
    assert Checkpoints(tmp_path).newest().name == "step-00000006-epoch-000001"
    fresh = seeded(make, seed=99)
    fresh.fit(checkpoints=Checkpoints(tmp_path), resume=True)
    assert fresh.bits() == expected


def test_a_state_broken_within_a_step_is_not_saved(tmp_path):
    def press_twice():
        press_ctrl_c()
        press_ctrl_c()

    run = seeded(SETUPS["adam, steps"])
    before_step(run.method, 5, press_twice)
    with pytest.raises(KeyboardInterrupt):
        run.fit(checkpoints=Checkpoints(tmp_path, every=3))
    assert Checkpoints(tmp_path).newest().name == "step-00000003-epoch-000000"


def test_ctrl_c_is_held_back_within_steps_only():
    def own(number, frame):
        pass

    for handler in (signal.default_int_handler, own):
        signal.signal(signal.SIGINT, handler)
        run, seen = seeded(SETUPS["adam, steps"]), []
        before_step(run.method, 1, lambda seen=seen: seen.append(signal.getsignal(signal.SIGINT)))
        run.fit(epochs=1)
        assert signal.getsignal(signal.SIGINT) is handler
        assert (handler in seen) == (handler is own)  # a handler of the user's own is never replaced


def test_a_finished_run_resumes_to_itself(tmp_path):
    run = seeded(SETUPS["adam, steps"])
    run.fit(checkpoints=Checkpoints(tmp_path))
    expected, again = run.bits(), seeded(SETUPS["adam, steps"], seed=5)
    again.fit(checkpoints=Checkpoints(tmp_path), resume=True)
    assert again.bits() == expected


@pytest.mark.parametrize(
    "change", [{"data": Batch(INPUTS[:9], INPUTS[:9, :1])}, {"batch_size": 2}], ids=["data", "batch_size"]
)
def test_an_epoch_goes_on_as_it_began_or_not_at_all(change, tmp_path):
    stop_by_crash(seeded(SETUPS["adam, steps"]), tmp_path)
    run = seeded(SETUPS["adam, steps"])
    run.data = change.get("data", REAL)
    with pytest.raises(CheckpointError, match="lies within an epoch of 11 points in 3 batches, but this run has"):
        run.fit(batch_size=change.get("batch_size", SIZE), checkpoints=Checkpoints(tmp_path), resume=True)


class Recorder(Memberwise):
    """DE, with the batches it saw and the weights at that time."""

    def __init__(self, bad_step=None):
        super().__init__(Gaussian(), no_penalty)
        self.bad_step, self.batches, self.weights = bad_step, [], []

    def loss(self, outputs, ensemble, batch, prepared, *, generator=None):
        self.batches.append(batch)
        self.weights.append(copy.deepcopy(dict(ensemble.named_parameters())))
        loss = super().loss(outputs, ensemble, batch, prepared)
        if len(self.batches) != self.bad_step:
            return loss
        return Loss(loss.total * float("nan"), loss.terms | {"data": loss.terms["data"] * float("inf")})


def linear():
    return Ensemble(lambda: nn.Linear(3, 1), 2)


@pytest.mark.parametrize(
    "batch_size, sizes", [(4, [4, 4, 3]), (10, [6, 5]), (11, [11]), (50, [11]), (1, [1] * 11), (None, [11])]
)
def test_batches_are_even_and_cover_every_point_once(batch_size, sizes):
    inputs = torch.arange(11.0)[:, None].expand(-1, 3)
    method = Recorder()
    fit(linear(), Batch(inputs, inputs[:, :1], weights=inputs[:, 0] / 5), method, epochs=2, batch_size=batch_size)
    assert [len(batch) for batch in method.batches] == sizes * 2
    epochs = [
        torch.cat([b.inputs[:, 0] for b in half])
        for half in (method.batches[: len(sizes)], method.batches[len(sizes) :])
    ]
    assert all(torch.equal(rows.sort().values, inputs[:, 0]) for rows in epochs)
    assert all(torch.equal(batch.inputs[:, :1], batch.targets) for batch in method.batches)
    assert all(torch.equal(batch.inputs[:, 0] / 5, batch.weights) for batch in method.batches)
    assert len(sizes) == 1 or not torch.equal(*epochs)


@pytest.mark.parametrize("most, sizes", [(1, [4]), (2, [4, 4]), (3, [4, 4, 3]), (5, [4, 4, 3]), (9, [4, 4, 3] * 3)])
def test_an_epoch_may_have_some_batches_only_of_rows_drawn_anew(most, sizes):
    inputs = torch.arange(11.0)[:, None].expand(-1, 3)
    method, count = Recorder(), 20
    history = fit(
        linear(), Batch(inputs, inputs[:, :1]), method, Plan(epochs=count, batch_size=4, batches_per_epoch=most)
    )
    assert len(history) == count
    assert [len(batch) for batch in method.batches] == sizes * count
    assert {batch.population for batch in method.batches} == {11}
    rows = [torch.cat([b.inputs[:, 0] for b in method.batches[i :: len(sizes)]]).tolist() for i in range(len(sizes))]
    for epoch in range(count):
        own = [value for i, size in enumerate(sizes) for value in rows[i][epoch * size : (epoch + 1) * size]]
        passes = max(1, len(sizes) // 3)
        assert len(set(own)) == sum(sizes) / passes  # none twice within a pass over the data
    assert {value for own in rows for value in own} == set(range(11))


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1.0, -2.0, 1.0], "weights must be finite and not negative, but 1 of 3 are not, the first is -2.0 in row 1;"),
        ([1.0, 1.0, float("nan")], "but 1 of 3 are not, the first is nan in row 2; give a row that should not count"),
        ([0.0, 0.0, 0.0], "some weight must be positive, but all 3 are zero; leave weights out to count all"),
    ],
)
def test_weights_that_count_nothing_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        fit(linear(), Batch(INPUTS[:3], INPUTS[:3, :1], weights=torch.tensor(weights)), Recorder(), epochs=1)


def test_penalties_are_per_point_of_the_whole_set():
    method, ensemble = Recorder(), linear()
    fit(ensemble, REAL, method, epochs=1, batch_size=4)
    assert {batch.population for batch in method.batches} == {len(REAL)}
    gradients = []
    for batch in method.batches:
        regularised, plain = (batch_loss(ensemble, batch, make(Gaussian())).total for make in (rde, de))
        penalty = regularised - plain
        gradients.append(torch.autograd.grad(penalty, ensemble.stacked.weight)[0])
    for gradient in gradients:  # ½w²/σ² / N with σ² = 2 / fan-in, whatever the batch
        torch.testing.assert_close(gradient, ensemble.stacked.weight.detach() / (2 / 3) / len(REAL))


def test_a_non_finite_loss_stops_before_it_does_harm(tmp_path):
    method, ensemble = Recorder(bad_step=5), linear()
    message = (
        r"step 5: the loss is not finite in data, total; the last good checkpoint is .*step-00000004-epoch-000001; "
        r"try a smaller learning rate"
    )
    with pytest.raises(NonFiniteLossError, match=message):
        fit(ensemble, REAL, method, Plan(epochs=3, batch_size=4, checkpoints=Checkpoints(tmp_path, every=2)))
    for name, parameter in ensemble.named_parameters():
        assert torch.equal(parameter, method.weights[-1][name])
    with pytest.raises(NonFiniteLossError, match="in data, total; no checkpoint was saved"):
        fit(ensemble, REAL, Recorder(bad_step=1), epochs=1)


def test_a_step_is_gradient_descent():
    ensemble, method = linear(), de(Gaussian())
    before = ensemble.stacked.weight.detach().clone()
    gradient = torch.autograd.grad(batch_loss(ensemble, REAL, method).total, ensemble.stacked.weight)[0]
    state = TrainState(ensemble, method, [SGD(ensemble.parameters(), lr=0.1)], [], torch.Generator())
    train_step(state, REAL, method.prepare(REAL.inputs), generator=state.generator, inspect=require_finite)
    torch.testing.assert_close(ensemble.stacked.weight.detach(), before - 0.1 * gradient)


def test_history_has_one_record_per_epoch():
    run = seeded(SETUPS["adam, steps"])
    history = run.fit()
    assert len(history) == EPOCHS
    assert set(history.last) == {"epoch", "step", "seconds", "loss", "data", "kl", "penalty", "learning_rate"}
    assert history.column("epoch") == [1, 2, 3, 4] and history.column("step") == [3, 6, 9, 12]
    assert history.column("learning_rate") == [0.01, 0.01, 0.001, 0.001]
    assert history.column("seconds") == sorted(history.column("seconds"))
    with pytest.raises(KeyError, match="no record has 'accuracy'; there are data, epoch, kl"):
        history.column("accuracy")
    with pytest.raises(KeyError, match="no records yet"):
        History().column("loss")
    assert History().last == {} and History([{"a": 1}, {}]).column("a") == [1, None]


def test_history_means_are_over_the_batches():
    method, ensemble = Recorder(), linear()
    history = fit(ensemble, REAL, method, epochs=1, batch_size=4, optimizer=SGD(ensemble.parameters(), lr=0.0))
    losses = [batch_loss(ensemble, batch, de(Gaussian())).total.item() for batch in method.batches]
    assert history.last["loss"] == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_early_stop_ends_after_the_epoch_that_asks_for_it(tmp_path):
    stop = lambda history: history.last["epoch"] >= 2  # noqa: E731
    run = seeded(SETUPS["adam, steps"])
    assert len(run.fit(stop=stop, checkpoints=Checkpoints(tmp_path))) == 2
    assert len(seeded(SETUPS["adam, steps"]).fit(stop=stop, checkpoints=Checkpoints(tmp_path), resume=True)) == 2


def test_no_epochs_train_nothing():
    ensemble = linear()
    before = copy.deepcopy(ensemble.state_dict())
    assert len(fit(ensemble, REAL, de(Gaussian()), epochs=0)) == 0
    assert all(torch.equal(value, before[name]) for name, value in ensemble.state_dict().items())


def test_progress_counts_all_steps_and_is_shown_on_request_only(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    fit(linear(), REAL, de(Gaussian()), epochs=2, batch_size=SIZE)
    fit(linear(), REAL, de(Gaussian()), epochs=2, batch_size=SIZE, progress=False)
    assert capsys.readouterr() == ("", "")
    fit(linear(), REAL, de(Gaussian()), epochs=2, batch_size=SIZE, progress=True)
    shown = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == [f"step {step} of 6" for step in range(1, 7)]


@pytest.mark.parametrize(
    "plan, ending",
    [
        (Plan(2), Ending.COMPLETE),
        (Plan(2, max_seconds=60.0), Ending.COMPLETE),
        (Plan(10**6, max_seconds=0.01), Ending.TIME),
        (Plan(9, stop=lambda history: len(history) == 2), Ending.STOPPED),
        (Plan(9, early_stopping=EarlyStopping("validation/loss", patience=1)), Ending.CONVERGED),
        (Plan(2, early_stopping=EarlyStopping("validation/loss", patience=9), max_seconds=1e-9), Ending.TIME),
    ],
)
def test_the_history_says_why_the_run_ended(plan, ending):
    history = fit(linear(), REAL, de(Gaussian()), plan, validation=lambda ensemble: {"loss": 1.0})
    assert history.ending == ending


def test_a_likelihood_that_no_optimiser_trains_is_told_of():
    ensemble = Ensemble(lambda: mlp(3, [4], 2), 2)
    learned, fixed = de(Categorical(0.1, learned=True)), de(Categorical(0.1))

    def train(method, *more):
        fit(ensemble, CLASSES, method, epochs=1, optimizer=[SGD(ensemble.parameters(), lr=0.1), *more])

    with pytest.warns(UserWarning, match="to learn log_temperature, but no optimizer holds it"):
        train(learned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(learned, Adam(learned.parameters()))
        train(fixed)


def test_the_default_optimiser_trains_everything_that_may_be_trained():
    def half_frozen():
        net = mlp(3, [4], 1)
        net[0].requires_grad_(False)
        return net

    ensemble, method = Ensemble(half_frozen, 2), de(Gaussian(0.1, learned=True))
    before = copy.deepcopy({**ensemble.state_dict(), **method.state_dict()})
    history = fit(ensemble, REAL, method, epochs=1)
    after = {**ensemble.state_dict(), **method.state_dict()}
    assert history.last["learning_rate"] == 1e-3
    assert {n for n in after if torch.equal(after[n], before[n])} == {
        "stacked.0.weight",
        "stacked.0.bias",
        "likelihood.floor",
    }
    assert not ensemble.training


def test_an_execution_of_ones_own_survives_resuming(tmp_path):
    @dataclass(frozen=True)
    class Own:
        name: str = "own"

        def __call__(self, module, parameters, buffers, inputs):
            return Loop()(module, parameters, buffers, inputs)

    make = partial(setup, execution=Own())
    make().fit(epochs=1, checkpoints=Checkpoints(tmp_path))
    run = make()
    run.fit(epochs=2, checkpoints=Checkpoints(tmp_path), resume=True)
    assert run.ensemble.execution == Own()


def test_a_run_goes_on_with_the_strategy_it_began_with(tmp_path):
    setup(execution=Loop()).fit(epochs=1, checkpoints=Checkpoints(tmp_path))
    run = setup(execution=None)
    run.fit(epochs=2, checkpoints=Checkpoints(tmp_path), resume=True)
    assert run.ensemble.execution == Loop()


def test_early_stopping_restores_the_best_weights_and_likelihood():
    ensemble, method = linear(), de(Gaussian(0.1, learned=True))
    scores, seen = iter([3.0, 1.0, 2.0, 2.0, 2.0, 2.0]), []

    def validation(members):
        seen.append(copy.deepcopy((dict(members.state_dict()), dict(method.state_dict()))))
        return {"score": next(scores)}

    plan = Plan(epochs=6, early_stopping=EarlyStopping("validation/score", patience=3))
    history = fit(ensemble, REAL, method, plan, validation=validation)
    assert len(history) == 5  # the best epoch, then three without progress
    assert as_bytes([dict(ensemble.state_dict()), dict(method.state_dict())]) == as_bytes(list(seen[1]))
    assert as_bytes(list(seen[1])) != as_bytes(list(seen[-1]))


def test_small_improvements_do_not_count_as_progress_but_are_kept():
    ensemble, seen = linear(), []

    def validation(members):
        seen.append(copy.deepcopy(dict(members.state_dict())))
        return {"score": 1.0 - 0.1 * len(seen)}

    plan = Plan(epochs=9, early_stopping=EarlyStopping("validation/score", patience=2, min_delta=0.5))
    history = fit(ensemble, REAL, de(Gaussian()), plan, validation=validation)
    assert len(history) == 3
    assert as_bytes(dict(ensemble.state_dict())) == as_bytes(seen[-1])


def test_early_stopping_resumes_with_its_best_weights(tmp_path):
    scores = [1.0, 5.0, 4.0, 3.0]

    def run(epochs, **more):
        torch.manual_seed(0)
        ensemble, done = linear(), []
        plan = Plan(epochs, 4, early_stopping=EarlyStopping("validation/score"), **more)

        def validation(members):
            done.append(1)
            return {"score": scores[len(done) - 1 + skipped]}

        skipped = 0 if epochs == 2 or not more else 2
        fit(ensemble, REAL, de(Gaussian()), plan, validation=validation, generator=torch.Generator().manual_seed(0))
        return as_bytes(dict(ensemble.state_dict()))

    whole = run(4)
    run(2, checkpoints=Checkpoints(tmp_path))
    assert run(4, checkpoints=Checkpoints(tmp_path), resume=True) == whole


def test_early_stopping_needs_its_metric():
    with pytest.raises(ValueError, match=r"needs the metric 'validation/loss', but an epoch has .*; pass validation"):
        fit(linear(), REAL, de(Gaussian()), Plan(epochs=2, early_stopping=EarlyStopping()))


def test_a_resumed_run_has_its_time_limit_again(tmp_path):
    def run(**more):
        torch.manual_seed(0)
        plan = Plan(epochs=10**6, max_seconds=0.05, checkpoints=Checkpoints(tmp_path), resume=True)
        return len(fit(linear(), REAL, de(Gaussian()), plan, generator=torch.Generator().manual_seed(0)))

    assert run() < run()


def test_an_optimizer_without_the_ensembles_parameters_is_refused():
    network = nn.Linear(3, 1)
    ensemble = Ensemble([network, nn.Linear(3, 1)])
    with pytest.raises(ValueError, match=r"holds none, .* pass ensemble.parameters\(\) to the optimizer"):
        fit(ensemble, REAL, de(Gaussian()), epochs=1, optimizer=SGD(network.parameters(), lr=0.1))


def test_something_must_train():
    ensemble = linear().requires_grad_(False)
    for optimizer in (None, SGD(ensemble.parameters(), lr=0.1)):
        with pytest.raises(ValueError, match=r"all of the ensemble and of the method are frozen; call requires_grad_"):
            fit(ensemble, REAL, de(Gaussian()), epochs=1, optimizer=optimizer)


def test_a_plan_or_its_arguments():
    with pytest.raises(ValueError, match="got neither a plan nor epochs; pass epochs"):
        fit(linear(), REAL, de(Gaussian()))
    with pytest.raises(ValueError, match="but got both; set them in the plan"):
        fit(linear(), REAL, de(Gaussian()), Plan(1), epochs=1)


class Poisoned(Memberwise):
    """DE whose gradient is not finite from some step on, though its loss is."""

    def __init__(self, last):
        super().__init__(Gaussian(0.1), no_penalty)
        self.left = last

    def loss(self, outputs, weights, batch, prepared, *, generator=None):
        self.left -= 1
        factor = outputs.sum() * 0 if self.left >= 0 else (outputs.sum() * 0).sqrt() * 0
        loss = super().loss(outputs, weights, batch, prepared, generator=generator)
        return Loss(loss.total + factor, loss.terms)


@pytest.mark.parametrize("steps", [0, 2, 5])
def test_weights_that_are_not_finite_are_never_saved(steps, tmp_path):
    ensemble = Ensemble(lambda: nn.Linear(3, 1), 2, execution=Loop())
    plan = Plan(2, SIZE, checkpoints=Checkpoints(tmp_path, every=1))
    with pytest.raises(NonFiniteLossError, match=r"not finite.*; (the last good checkpoint is|no checkpoint was)"):
        fit(ensemble, REAL, Poisoned(steps), plan, progress=False)
    newest = plan.checkpoints.newest()
    assert (newest is None) == (steps == 0)
    if newest is not None:
        assert newest.name.startswith(f"step-{steps:08d}")


@pytest.mark.parametrize("method", [de(Gaussian(0.1)), degp(Gaussian(0.1), NNGP(1))], ids=["de", "degp"])
def test_outputs_that_are_not_finite_end_in_one_error(method):
    ensemble = Ensemble(lambda: nn.Linear(3, 1), 2, execution=Loop())
    nn.init.constant_(ensemble.stacked.weight, torch.inf)
    with pytest.raises(NonFiniteLossError, match=r"step 1: .*not finite.*; try a smaller learning rate"):
        fit(ensemble, REAL, method, epochs=1, progress=False)


def test_callbacks_see_plain_records_of_every_epoch():
    ensemble, records, others = Ensemble(lambda: nn.Linear(3, 1), 2), [], []
    callbacks = [records.append, lambda record: others.append(record.pop("loss"))]
    history = fit(ensemble, REAL, de(Gaussian(0.1)), epochs=3, validation=REAL, callback=callbacks, progress=False)
    assert records == history.records and len(others) == 3  # a callback has a copy
    assert all(isinstance(value, (int, float)) for record in records for value in record.values())


def test_an_optimizer_that_needs_a_closure_is_refused():
    ensemble = Ensemble(lambda: nn.Linear(3, 1), 2)
    with pytest.raises(ValueError, match="but LBFGS evaluates the loss several times per step; use Adam or SGD"):
        fit(ensemble, REAL, de(Gaussian(0.1)), epochs=1, optimizer=torch.optim.LBFGS(ensemble.parameters()))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_training_needs_no_gradients_of_its_caller(mode):
    def trained():
        torch.manual_seed(0)
        return Ensemble(lambda: mlp(3, [4], 1), 3)

    method, options = degp(Gaussian(variance=0.1), NNGP(depth=1)), {"epochs": 2, "progress": False}
    one, two = trained(), trained()
    fit(one, REAL, method, generator=torch.Generator().manual_seed(0), **options)
    with mode():
        fit(two, REAL, method, generator=torch.Generator().manual_seed(0), **options)
    torch.testing.assert_close(two(INPUTS), one(INPUTS))
