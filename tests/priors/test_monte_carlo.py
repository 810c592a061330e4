"""The Monte-Carlo NN-GP is the average over random networks, and converges to the analytic kernel."""

import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp.nets import mlp_features
from degp.priors import NNGP, MonteCarloNNGP
from tests.fixtures import normal, seeded


@pytest.mark.parametrize("widths, draws", [([32], range(2, 9)), ([256, 256], range(0, 6))])
def test_error_falls_with_the_root_of_the_draws(widths, draws):
    x, repeats = normal(5, 3, dtype=torch.float32), 20
    exact = NNGP(len(widths))(x, x)
    errors = []
    for power in draws:
        prior = MonteCarloNNGP(mlp_features(3, widths), num_draws=2**power)
        kernels = [prior.kernel(generator=seeded(100 * power + i))(x, x) for i in range(repeats)]
        errors.append(torch.stack(kernels).sub(exact).square().mean().sqrt().log2().item())
    powers = torch.tensor([float(power) for power in draws])
    slope = torch.cov(torch.stack([powers, torch.tensor(errors)]))[0, 1] / powers.var()
    assert slope.item() == pytest.approx(-0.5, abs=0.1)


def test_kernel_equals_a_loop_over_networks(generator):
    prior = MonteCarloNNGP(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten()),
        readout_weight_variance=1.5,
        readout_bias_variance=0.3,
    ).fixed(generator=generator)
    x, y = normal(3, 1, 5, 5, dtype=torch.float32), normal(2, 1, 5, 5, seed=1, dtype=torch.float32)
    total = torch.zeros(3, 2)
    for s in range(10):
        weight, bias = (getattr(prior.weights, name)[s] for name in ("0/weight", "0/bias"))
        h, h_right = (torch.tanh(nn.functional.conv2d(inputs, weight, bias)).flatten(1) for inputs in (x, y))
        total += h @ h_right.T / (10 * h.shape[1])
    assert_close(prior.kernel()(x, y).float(), 1.5 * total + 0.3)


def test_without_hidden_layers_it_is_linear_regression():
    x, y = normal(4, 3), normal(5, 3, seed=1)
    assert_close(MonteCarloNNGP(mlp_features(3, [])).kernel()(x, y), NNGP(0)(x, y))


def test_kernels_are_resampled_and_a_bank_is_fixed():
    x, prior = normal(4, 3, dtype=torch.float32), MonteCarloNNGP(mlp_features(3, [8]))
    bank, draws = prior.fixed(generator=seeded(0)), seeded(1)
    assert not torch.equal(prior.kernel(generator=draws)(x, x), prior.kernel(generator=draws)(x, x))
    assert torch.equal(bank.kernel(generator=draws)(x, x), bank.kernel(generator=draws)(x, x))
    assert torch.equal(prior.kernel(generator=seeded(0))(x, x), bank.kernel()(x, x))


def test_one_kernel_uses_the_same_networks_for_every_pair():
    kernel = MonteCarloNNGP(mlp_features(3, [8])).kernel(generator=seeded(0))
    x, y = normal(4, 3, dtype=torch.float32), normal(2, 3, seed=1, dtype=torch.float32)
    both = torch.cat([x, y])
    assert_close(kernel(both, both)[:4, 4:], kernel(x, y))


def test_kernel_follows_inputs_that_change_in_place():
    kernel, x = MonteCarloNNGP(mlp_features(3, [8])).kernel(generator=seeded(0)), normal(4, 3, dtype=torch.float32)
    kernel(x, x)
    x.add_(1)
    assert_close(kernel(x, x), kernel(x.clone(), x.clone()))


def test_a_bank_is_saved_with_its_networks():
    x, prior = normal(4, 3, dtype=torch.float32), MonteCarloNNGP(mlp_features(3, [8]))
    one, other = prior.fixed(generator=seeded(0)), prior.fixed(generator=seeded(1))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.kernel()(x, x), other.kernel()(x, x))


def test_gram_is_positive_definite_under_autocast():
    x, prior = normal(64, 3, dtype=torch.float32), MonteCarloNNGP(mlp_features(3, [64]), num_draws=64)
    with torch.autocast("cpu", torch.bfloat16):
        gram = prior.kernel(generator=seeded(0))(x, x)
    assert torch.linalg.eigvalsh(gram)[0] > -1e-12 * gram.trace()
    assert_close(gram, prior.kernel(generator=seeded(0))(x, x), rtol=0.02, atol=0.02)


REFUSED = {
    "num_draws must be at least 1, but it is 0": lambda: MonteCarloNNGP(nn.Linear(1, 1), num_draws=0),
    "variances must not be negative, but they are 2.0 (weights) and -1.0 (bias)": lambda: MonteCarloNNGP(
        nn.Linear(1, 1), readout_bias_variance=-1.0
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_arguments_are_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message]()


def test_batchnorm_in_the_features_is_refused():
    features = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    with pytest.raises(ValueError, match=r"must have no BatchNorm, .*, but 1 is a BatchNorm1d; leave it out, or use"):
        MonteCarloNNGP(features)


def test_lazy_layers_are_refused():
    with pytest.raises(ValueError, match="but the prior's feature network has weight, bias of a lazy layer"):
        MonteCarloNNGP(nn.LazyLinear(3))
