"""Noise and temperature of heads: fitted on points that the network has not seen; the prior's nugget takes none."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Batch, attach
from degp.metrics import coverage
from tests.fixtures import normal, seeded

OPTIONS = {"members": 16, "width": 32, "steps": 100, "progress": False}


def noisy(count, seed):
    """One linear function with noise as large as the signal, and one without noise."""
    x = normal(count, 4, seed=seed, dtype=torch.float32)
    noise = normal(count, 1, seed=seed + 100, dtype=torch.float32)
    return x, torch.cat([x[:, :1] + noise, x[:, 1:2] - x[:, 2:3]], 1)


def overfitted(x, loss, outputs):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, outputs))
    optimizer = torch.optim.Adam(network.parameters(), 2e-2)
    for _ in range(300):
        optimizer.zero_grad()
        loss(network(x)).backward()
        optimizer.step()
    return network


def test_noise_is_that_of_validation_points_per_target():
    x, y = noisy(60, 0)
    other, new = (noisy(200, seed) for seed in (1, 2))
    network = overfitted(x, lambda outputs: nn.functional.mse_loss(outputs, y), 2)
    plain, fitted = (
        attach(network, Batch(x, y), validation=validation, generator=seeded(), **OPTIONS).predict(new[0])
        for validation in (None, [Batch(*other)])
    )
    assert_close(fitted.mean, plain.mean)
    assert_close(fitted.epistemic, plain.epistemic)
    before, after = (coverage(p.mean[:, :1], p.total[:, :1], new[1][:, :1], level=0.9) for p in (plain, fitted))
    assert before < 0.8 and 0.85 < after < 0.95
    grown = (fitted.aleatoric / plain.aleatoric)[0]
    assert grown[0] > 3 * grown[1]


def test_the_temperature_is_that_of_validation_points():
    x, y = noisy(60, 0)
    (other, theirs), (new, truth) = (noisy(300, seed) for seed in (1, 2))
    labels = (y[:, 0] > 0).long()
    network = overfitted(x, lambda outputs: nn.functional.cross_entropy(outputs, labels), 2)
    validation = Batch(other, (theirs[:, 0] > 0).long())
    scores = {}
    for name, held_out in {"plain": None, "fitted": validation}.items():
        attached = attach(network, Batch(x, labels), validation=held_out, generator=seeded(), **OPTIONS)
        prediction = attached.predict(new, generator=seeded())
        scores[name] = -float(prediction.log_prob((truth[:, 0] > 0).long()).mean())
    assert attached.method.likelihood.temperature > 1
    assert scores["fitted"] < scores["plain"]


def test_a_noisy_target_is_smoothed_beside_targets_without_noise():
    """With one noise variance for all, heads would fit much of the noise: an error of 1.38 times that alone."""
    (x, y), (new, _) = noisy(200, 0), noisy(500, 1)
    y = torch.cat([2 * y[:, :1] - x[:, :1], y[:, 1:], x[:, 3:].sin()], 1)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3))
    truth, options = new[:, :1], OPTIONS | {"members": 32, "width": 64, "steps": 200}
    beside = attach(network, Batch(x, y), generator=seeded(), **options).predict(new).mean[:, :1]
    alone = attach(network, Batch(x, y[:, :1]), generator=seeded(), layer="2", **options).predict(new).mean
    errors = [float((mean - truth).square().mean().sqrt()) for mean in (beside, alone)]
    assert errors[0] < 1.25 * errors[1]


def test_heads_leave_the_noise_in_the_noise():
    """The prior's nugget is white too: where it is as large as the noise, the mean follows the noise."""
    x, y = noisy(200, 0)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    attached = attach(network, Batch(x, y[:, :1]), generator=seeded(), **OPTIONS)
    learned = float(attached.method.likelihood.variance)
    assert 0.8 < learned / attached.scales.noise_variance < 1.25


@pytest.mark.parametrize(
    "targets, message", [(torch.full((9, 3), 0.5), "but there are 3 targets per point, and 2 in the data")]
)
def test_validation_points_need_the_targets_of_the_data(targets, message):
    x, y = noisy(20, 0)
    with pytest.raises(ValueError, match=message):
        attach(nn.Linear(4, 2), Batch(x, y), validation=Batch(x[:9], targets), **OPTIONS | {"steps": 1})


def test_an_error_in_validation_points_says_so():
    x, y = noisy(20, 0)
    labels = torch.arange(20) % 2
    for validation, message in (([], "but here members need data"), (Batch(x, labels + 1), "reach from 1 to 2")):
        with pytest.raises(ValueError, match=f"validation points must be like those of the data, .*{message}"):
            attach(nn.Linear(4, 2), Batch(x, labels), validation=validation, **OPTIONS | {"steps": 1})


def test_without_validation_points_a_warning_says_what_is_at_risk(recwarn):
    x, y = noisy(40, 0)
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    attach(network, Batch(x, y), validation=Batch(*noisy(20, 1)), generator=seeded(), **OPTIONS | {"steps": 1})
    assert not [each for each in recwarn if "validation" in str(each.message)]
    with pytest.warns(UserWarning, match="which are too small if the network was trained on these points; pass"):
        attach(network, Batch(x, y), generator=seeded(), **OPTIONS | {"steps": 1})
