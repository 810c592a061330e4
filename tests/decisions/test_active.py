"""The closed form of joint information equals the dense log-determinant, and rows are selected by it."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from torch.testing import assert_close

from degp import Bernoulli, Categorical, Ensemble, Gaussian, methods, priors
from degp.decisions.active import (
    beliefs,
    beliefs_of,
    choose,
    greedy_information,
    greedy_reduction,
    joint_information,
    single_information,
    variance,
    variance_reduction,
)
from degp.nets import mlp
from degp.predictive import RegressionPredictive
from degp.sklearn import DEGPClassifier, DEGPRegressor

QUICK = {"members": 4, "hidden_layers": (8,), "steps": 5, "alpha": 0.1, "measurement_points": 8, "random_state": 0}


def random_labels(M, N, C, seed=0):
    """A factor, and blocks that are at least the identity."""
    g = torch.Generator().manual_seed(seed)
    F = torch.randn(M, N, C, dtype=torch.float64, generator=g)
    R = torch.randn(N, C, C, dtype=torch.float64, generator=g)
    return F, torch.eye(C, dtype=torch.float64) + 0.2 * R @ R.mT


def dense_information(F, own, rows):
    """½ log|B_S + F_SᵀF_S|, by forming it."""
    F_S = F[:, rows].flatten(1)
    return 0.5 * torch.logdet(torch.block_diag(*own[rows]) + F_S.mT @ F_S)


@pytest.mark.parametrize("M, N, C", [(1, 1, 1), (2, 5, 1), (5, 12, 1), (3, 6, 3), (4, 8, 2)])
def test_gains_add_up_to_the_dense_log_determinant(M, N, C):
    F, own = random_labels(M, N, C)
    rows, gains = greedy_information(F, own, N)
    assert sorted(rows.tolist()) == list(range(N))
    for k in range(1, N + 1):
        assert_close(gains[:k].sum(), dense_information(F, own, rows[:k]))


@given(st.integers(1, 5), st.integers(2, 7), st.integers(1, 3), st.integers(0, 1000))
def test_every_selection_has_the_largest_gain(M, N, C, seed):
    F, own = random_labels(M, N, C, seed)
    rows = greedy_information(F, own, N)[0].tolist()
    for k in range(N):
        best = max(float(dense_information(F, own, [*rows[:k], n])) for n in range(N) if n not in rows[:k])
        assert math.isclose(float(dense_information(F, own, rows[: k + 1])), best, rel_tol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_selection_is_near_the_optimum(seed):
    F, own = random_labels(3, 8, 1, seed)
    best = max(dense_information(F, own, list(rows)) for rows in itertools.combinations(range(8), 4))
    assert greedy_information(F, own, 4)[1].sum() >= (1 - 1 / math.e) * best


def dense_variance_left(F, own, rows):
    """Σₙ tr Cov(FₙᵀZ | labels of the rows), by forming it."""
    F_S = F[:, rows].flatten(1)
    W = torch.eye(len(F), dtype=F.dtype)
    if rows:
        W = W - F_S @ torch.linalg.solve(torch.block_diag(*own[rows]) + F_S.mT @ F_S, F_S.mT)
    return torch.einsum("mnc,ml,lnc->", F, W, F)


@pytest.mark.parametrize("M, N, C", [(1, 1, 1), (2, 5, 1), (5, 12, 1), (3, 6, 3), (4, 8, 2)])
def test_reductions_equal_those_of_the_dense_variance_and_each_is_the_largest(M, N, C):
    F, own = random_labels(M, N, C)
    rows, gains = greedy_reduction(F, own, N)
    rows = rows.tolist()
    assert sorted(rows) == list(range(N))
    for k in range(N):
        left = dense_variance_left(F, own, rows[: k + 1])
        assert_close(gains[: k + 1].sum(), dense_variance_left(F, own, []) - left)
        assert left <= min(dense_variance_left(F, own, [*rows[:k], n]) for n in range(N) if n not in rows[:k]) + 1e-9


def test_variance_is_reduced_where_the_rows_are(generator):
    """An outlier is least known and most informative, but a label in a cluster informs about all of its rows."""
    points = torch.eye(2)[[0, 1, 1, 1, 1]] * torch.tensor([[1.5], [1.0], [1.0], [1.0], [1.0]])
    ensemble = Ensemble(lambda: priors.WeightPrior().initialise(mlp(2, [], 1), generator=generator), 200)
    known = beliefs(ensemble, points, methods.degp(Gaussian(0.1), priors.NNGP(1)))
    assert joint_information(known, 1).tolist() == [0]
    assert variance_reduction(known, 2)[1] == 0 != variance_reduction(known, 1)[0]


def test_duplicate_rows_are_not_twice_as_informative(generator):
    """The two most informative single rows are duplicates: jointly a third row is more informative."""
    points = torch.eye(3)[[0, 0, 1, 2]] * torch.tensor([[3.0], [3.0], [1.0], [0.1]])
    ensemble = Ensemble(lambda: priors.WeightPrior().initialise(mlp(3, [], 1), generator=generator), 6)
    known = beliefs(ensemble, points, methods.degp(Gaussian(0.1), priors.NNGP(1)))
    assert set(single_information(known, 2).tolist()) == {0, 1} == set(variance(known, 2).tolist())
    assert joint_information(known, 2).tolist() == [0, 2]


def fitted(kind=DEGPRegressor, targets=1, **settings):
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 3))
    y = X[:, :targets] + 0.1 * random.standard_normal((40, targets))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0) if kind is DEGPClassifier else y[:, 0] if targets == 1 else y
    return kind(**QUICK | settings).fit(X, y), random.standard_normal((15, 3))


@pytest.mark.parametrize(
    "settings", [{}, {"targets": 2}, {"noise": "input-dependent"}, {"method": "de"}, {"method": "rms"}]
)
def test_the_information_of_real_labels_is_that_of_the_posterior(settings):
    """½ log|I + K_S/σ²| with the dense joint covariance of the estimator's own posterior."""
    model, pool = fitted(**settings)
    known = beliefs_of(model, torch.tensor(pool))
    rows, gains = greedy_information(known.factor, known.own, 6)
    assert isinstance(known.predictive, RegressionPredictive)
    K, noise = known.function.marginal(rows).covariance(), known.predictive.aleatoric[rows].flatten()
    dense = 0.5 * torch.logdet(torch.eye(len(K)) + K / noise.sqrt().outer(noise.sqrt()))
    assert_close(gains.sum(), dense)
    assert choose(model, pool, 6).tolist() == rows.tolist()


def test_the_information_of_one_label_is_that_of_bald():
    model, pool = fitted()
    known = beliefs_of(model, torch.tensor(pool))
    by_itself = 0.5 * torch.log1p(known.function.variance() / known.predictive.aleatoric).flatten()
    assert_close(0.5 * torch.logdet(known.own + known.factor.square().sum(0)[..., None]), by_itself)
    assert choose(model, pool, 1, rule=single_information) == choose(model, pool, 1) == by_itself.argmax()


def test_an_update_leaves_less_information():
    model, pool = fitted()
    before = beliefs_of(model, torch.tensor(pool))
    model.update(pool[:5], np.zeros(5))
    after = beliefs_of(model, torch.tensor(pool))
    assert (after.function.variance() <= before.function.variance() + 1e-12).all()
    assert (
        greedy_information(after.factor, after.own, 5)[1].sum()
        < greedy_information(before.factor, before.own, 5)[1].sum()
    )


def test_the_information_of_one_class_label_is_its_epistemic_part(generator):
    """Where the members agree that classes are equally likely, total uncertainty is largest and nothing is to learn."""

    def member():
        network = torch.nn.Linear(1, 2, bias=False)
        torch.nn.init.normal_(network.weight, generator=generator)
        return network

    ensemble, points = Ensemble(member, 8), torch.tensor([[0.0], [3.0]])
    known = beliefs(ensemble, points, methods.de(Categorical()))
    assert known.predictive.total.argmax() == 0
    assert single_information(known, 1).tolist() == [1]


def negative_log_prob(likelihood, label, f):
    return -likelihood.log_prob(f[None, None], label).sum()


def test_the_curvature_of_a_class_is_that_of_its_log_probability():
    """FFᵀ is A Hₙ Aᵀ with H the Hessian of −log p(y | f), the same for every y."""
    model, pool = fitted(DEGPClassifier)
    known = beliefs_of(model, torch.tensor(pool))
    q, likelihood = known.function, model.likelihood_
    assert isinstance(likelihood, Categorical)
    for n, y in itertools.product(range(3), range(3)):
        nll = partial(negative_log_prob, likelihood, torch.tensor([y]))
        H = torch.autograd.functional.hessian(nll, q.mean[n])
        A, F = q.deviations[:, n], known.factor[:, n]
        assert_close(F @ F.mT, A @ H @ A.mT)
        lam = q.diagonal[n, 0]
        assert_close(torch.logdet(known.own[n]), torch.logdet(torch.eye(3) + lam * H))


@pytest.mark.parametrize("rule", [joint_information, variance_reduction, single_information, variance])
@pytest.mark.parametrize("kind", [DEGPRegressor, DEGPClassifier])
def test_rows_are_selected_once_each_and_repeatably(kind, rule):
    model, pool = fitted(kind)
    rows = choose(model, pool, 15, rule=rule)
    assert sorted(rows.tolist()) == list(range(15))
    assert np.array_equal(choose(model, pool, 15, rule=rule), rows)


def test_invalid_selections_are_refused():
    model, pool = fitted()
    for count in (0, 16):
        with pytest.raises(ValueError, match=f"from 1 to the 15 rows of the pool, but it is {count}"):
            choose(model, pool, count)
        known = beliefs_of(model, torch.tensor(pool))
        with pytest.raises(ValueError, match=f"from 1 to the 15 points, but it is {count}"):
            joint_information(known, count)
    with pytest.raises(ValueError, match="features"):
        choose(model, pool[:, :2], 3)
    with pytest.raises(NotFittedError):
        choose(DEGPRegressor(), pool, 3)
    with pytest.raises(TypeError, match="the likelihood is a Bernoulli"):
        beliefs(model.ensemble_, torch.tensor(pool), methods.degp(Bernoulli(), priors.NNGP(1)))
