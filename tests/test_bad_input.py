"""Invalid data and settings are rejected with a clear message; unusual but valid data train."""

import re

import jaxtyping
import pytest
import torch

from degp import (
    Batch,
    BatchRegion,
    Bernoulli,
    Categorical,
    Ensemble,
    Gaussian,
    Plan,
    UniformBox,
    ensemble_posterior,
    fit,
    predict,
)
from degp.methods import de, degp, rde
from degp.nets import mlp
from degp.priors import NNGP, WeightPrior

X = torch.linspace(-1, 1, 6)[:, None]
NAN, INF = float("nan"), float("inf")


def train(inputs=X, targets=X, likelihood=None, *, members=3, outputs=1, method=None, **options):
    ensemble = Ensemble(lambda: mlp(1, [5], outputs), members)
    method = method or degp(likelihood or Gaussian(), NNGP(1))
    history = fit(ensemble, Batch(inputs, targets), method, Plan(**({"epochs": 3} | options)))
    return ensemble, method, history


def with_last(value):
    return torch.cat([X[:5], torch.tensor([[value]])])


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
MISTAKES = {
    "no rows": ({"inputs": X[:0], "targets": X[:0]}, "there must be at least one row of data, but inputs have none"),
    "NaN input": ({"inputs": with_last(NAN)}, "inputs must be finite, but 1 of 6 rows .* the first is row 5; drop"),
    "infinite input": ({"inputs": with_last(INF)}, "inputs must be finite, but 1 of 6 rows"),
    "NaN target": ({"targets": with_last(NAN)}, "targets must be finite, but 1 of 6 rows .* the first is row 5; drop"),
    "infinite target": ({"targets": with_last(-INF)}, "targets must be finite, but 1 of 6 rows"),
    "flat targets": ({"targets": X[:, 0]}, r"real targets must be .* \(N, 1\).* of shape \(6,\).*targets\[:, None\]"),
    "too many columns": ({"targets": X.expand(-1, 2)}, r"real targets must be .* of shape \(6, 2\)"),
    "labels for real targets": ({"targets": LABELS[:, None]}, "but they are torch.int64"),
    "real labels": (
        {"targets": LABELS.float(), "likelihood": Categorical(), "outputs": 3},
        r"class labels must be whole numbers, one per point \(N,\), but targets are torch.float32 of shape \(6,\)",
    ),
    "labels too high": (
        {"targets": LABELS, "likelihood": Categorical(), "outputs": 2},
        "labels must lie in 0 … 1, since the network has 2 outputs, but they reach from 0 to 2; number the classes",
    ),
    "labels too low": (
        {"targets": LABELS - 1, "likelihood": Categorical(), "outputs": 3},
        "labels must lie in 0 … 2, .* but they reach from -1 to 1",
    ),
    "neither 0 nor 1": ({"targets": X, "likelihood": Bernoulli()}, "must be 0 or 1, but they include -1.0"),
    "one member": ({"members": 1}, "a covariance needs at least two members, but there is 1; make the ensemble larger"),
    "no batches per epoch": ({"batches_per_epoch": 0}, "batches_per_epoch must be at least 1, but it is 0; None makes"),
    "no points per batch": (
        {"batch_size": 0},
        "batch_size must be at least 1, but it is 0; None takes all data at once",
    ),
    "negative epochs": ({"epochs": -1}, "epochs must not be negative, but it is -1"),
}


@pytest.mark.parametrize("options, message", MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_rejected_with_a_message(options, message):
    with pytest.raises(ValueError, match=message):
        train(**options)


SETTINGS = {
    "variance": (lambda value: Gaussian(value), "variance must be positive"),
    "temperature": (lambda value: Categorical(value), "temperature must be positive"),
    "alpha": (lambda value: degp(Gaussian(), NNGP(1), alpha=value), "alpha .* must not be negative"),
    "beta": (lambda value: degp(Gaussian(), NNGP(1), beta=value), "the weight of a penalty must not be negative"),
    "epsilon": (lambda value: degp(Gaussian(), NNGP(1), epsilon=value), "epsilon .* must be positive"),
    "penalty": (lambda value: rde(Gaussian(), weight=value), "the weight of a penalty must not be negative"),
    "prior": (lambda value: WeightPrior(weights=value), "the variances of weights must be positive"),
    "lambda": (lambda value: ensemble_posterior(torch.randn(2, 6, 1), diagonal=value), "must not be negative"),
    "points": (lambda value: BatchRegion(int(value)), "count .* must be at least 1"),
    "box": (lambda value: UniformBox(0.0, value, 3), "a box needs low ≤ high"),
}


@pytest.mark.parametrize("make, message", SETTINGS.values(), ids=SETTINGS.keys())
def test_negative_settings_are_rejected_with_a_message(make, message):
    with pytest.raises(ValueError, match=message + r"(.|\n)*-1\.?0?"):
        make(-1.0)


@pytest.mark.parametrize(
    "inputs, given", [(X.double(), "(6, 1) torch.float64"), (X.expand(6, 2), "(6, 2) torch.float32")]
)
def test_inputs_that_members_cannot_take_are_named(inputs, given):
    ensemble, message = Ensemble(lambda: mlp(1, [5], 1), 3), rf"which are {re.escape(given)}, but .* are torch.float32:"
    with pytest.raises(ValueError, match=message):
        fit(ensemble, Batch(inputs, X), de(Gaussian()), epochs=1)
    with pytest.raises(ValueError, match=message):
        predict(ensemble, inputs, de(Gaussian()))


def test_what_is_no_ensemble_no_optimizer_no_prior_or_no_callback_is_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its own message comes first
    network, ensemble, method = mlp(1, [5], 1), Ensemble(lambda: mlp(1, [5], 1), 3), de(Gaussian())
    for use in (lambda: fit(network, Batch(X, X), method, epochs=1), lambda: predict(network, X, method)):
        with pytest.raises(TypeError, match=r"an ensemble must be .*, but it is a Sequential; make one"):
            use()
    with pytest.raises(TypeError, match=r"an optimizer must be made for .*, but it is <class 'torch.optim.adam.Adam'>"):
        fit(ensemble, Batch(X, X), method, epochs=1, optimizer=torch.optim.Adam)
    with pytest.raises(TypeError, match=r"a prior must have .*, but it is <class 'degp.priors.analytic.NNGP'>"):
        degp(Gaussian(), NNGP)
    for callback in (3, [print, "file"]):
        with pytest.raises(TypeError, match=r"a callback must be a function of an epoch's record, .* but it is a"):
            fit(ensemble, Batch(X, X), method, epochs=1, callback=callback)


def test_a_single_member_trains_as_a_plain_network():
    _, _, history = train(members=1, method=de(Gaussian()))
    assert len(history) == 3


UNUSUAL = {
    "constant inputs": (torch.zeros(6, 1), X),
    "duplicate points": (X[[0, 0, 0, 1, 1, 2]], X),
    "duplicate points and targets": (X[[0, 0, 0, 0, 0, 0]], X[[0, 0, 0, 0, 0, 0]]),
    "one point": (X[:1], X[:1]),
    "huge inputs": (1e6 * X, X),
}


@pytest.mark.parametrize("inputs, targets", UNUSUAL.values(), ids=UNUSUAL.keys())
@pytest.mark.parametrize("batch_size", [None, 2])
def test_unusual_data_train_to_finite_results(inputs, targets, batch_size):
    torch.manual_seed(0)
    ensemble, method, history = train(inputs, targets, batch_size=batch_size, epochs=8)
    predictive = predict(ensemble, inputs, method)
    assert torch.tensor(history.column("loss")).isfinite().all()
    assert predictive.mean.isfinite().all() and (predictive.std > 0).all() and predictive.std.isfinite().all()
