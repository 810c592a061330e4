"""Predictions of a point are independent of the other points, and leave the ensemble unchanged."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import (
    Bernoulli,
    Categorical,
    Ensemble,
    Gaussian,
    HeteroscedasticGaussian,
    PointwiseAverage,
    ensemble_posterior,
    methods,
    predict,
)
from degp.nets import mlp
from degp.prediction import evaluate
from degp.priors import NNGP
from degp.runtime import progress
from tests.fixtures import normal, seeded


def gp(likelihood):
    """DE-GP: at new points its prior does not matter."""
    return methods.degp(likelihood, NNGP(1))


def small_ensemble(**more):
    torch.manual_seed(0)
    return Ensemble(lambda: mlp(2, [5], 2), 4, **more).double()


def test_prediction_is_the_likelihoods_under_the_posterior():
    ensemble, x = small_ensemble(), normal(7, 2)
    g = torch.stack([member(x) for member in ensemble.to_modules()]).detach()
    predictive = predict(ensemble, x, gp(Gaussian(0.3)))
    assert_close(predictive.mean, g.mean(0))
    spread = g.var(0, correction=0)
    assert_close(predictive.total, spread + 0.05 * spread.mean(1, keepdim=True) + 0.3)
    assert_close(predict(ensemble, x, methods.de(Gaussian(0.3))).total, spread + 0.3)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_prediction_of_a_point_is_independent_of_the_other_points(batch_size):
    ensemble, x = small_ensemble(), normal(7, 2)
    method = gp(Gaussian())
    together, alone = predict(ensemble, x, method, batch_size=batch_size), predict(ensemble, x[2:4], method)
    assert_close(together.mean[2:4], alone.mean)
    assert_close(together.total[2:4], alone.total)


def test_observations_after_training_are_the_conditioned_posterior():
    ensemble, seen, new, y = small_ensemble(), normal(3, 2), normal(5, 2, seed=1), normal(3, 2, seed=2)
    learned = ensemble_posterior(evaluate(ensemble, seen), diagonal=PointwiseAverage()).coefficients(y, 0.3)
    joint = ensemble_posterior(evaluate(ensemble, torch.cat([seen, new])), diagonal=PointwiseAverage())
    expected = joint.condition(torch.arange(3), y, 0.3).marginal(slice(3, 8))
    predictive = predict(ensemble, new, gp(Gaussian(0.3)), coefficients=learned)
    assert_close(predictive.mean, expected.mean)
    assert_close(predictive.epistemic, expected.variance())


def test_draws_of_a_prediction_come_from_the_generator():
    ensemble, x = small_ensemble(), normal(7, 2)
    one, two, other = (
        predict(ensemble, x, gp(Categorical()), generator=seeded(seed)).probabilities for seed in (0, 0, 1)
    )
    assert torch.equal(one, two) and not torch.equal(one, other)


def test_prediction_leaves_modes_and_statistics_unchanged():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))
    ensemble = Ensemble(lambda: nn.Sequential(nn.Dropout(), nn.Linear(4, 1)), 3, backbone=backbone).double()
    ensemble.backbone.eval()  # frozen, while the heads train
    modes = [module.training for module in ensemble.modules()]
    before = {name: value.clone() for name, value in ensemble.state_dict().items()}
    one, two = (predict(ensemble, normal(7, 2), gp(Gaussian())) for _ in range(2))
    assert torch.equal(one.mean, two.mean)  # without dropout
    assert [module.training for module in ensemble.modules()] == modes
    assert_close(dict(ensemble.state_dict()), before)


@pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli(), HeteroscedasticGaussian()])
@pytest.mark.parametrize("members", [1, 3])
def test_members_in_half_precision_have_predictions_in_single(likelihood, members):
    torch.manual_seed(0)
    ensemble, x = Ensemble(lambda: mlp(2, [5], 2), members).bfloat16(), normal(7, 2).bfloat16()
    outputs = evaluate(ensemble, x).float()
    for method in (methods.de(likelihood), gp(likelihood)):
        half, single = predict(ensemble, x, method, generator=seeded()), method.predictive(outputs, generator=seeded())
        assert half.aleatoric.dtype == half.total.dtype == torch.float32
        assert_close((half.aleatoric, half.total), (single.aleatoric, single.total), rtol=0, atol=0)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_has_a_point(batch_size):
    with pytest.raises(ValueError, match=f"batch_size is a number of points .* at least 1, but it is {batch_size}"):
        predict(small_ensemble(), normal(2, 2), gp(Gaussian()), batch_size=batch_size)


def test_no_points_are_refused():
    with pytest.raises(ValueError, match="there is nothing to predict: inputs have no rows"):
        predict(small_ensemble(), torch.zeros(0, 2).double(), gp(Gaussian()))


def test_long_predictions_show_their_progress(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    members, x = small_ensemble(), normal(7, 2)
    predict(members, x, gp(Gaussian(0.1)), batch_size=3, progress=True)
    shown = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["point 3 of 7", "point 6 of 7", "point 7 of 7"]
    predict(members, x, gp(Gaussian(0.1)))
    assert not capsys.readouterr().err
