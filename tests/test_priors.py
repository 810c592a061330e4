"""Priors have the kernels and variances they claim, and exact regression under them gives the known answers."""

import math
import re

import gpytorch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from degp import KroneckerGaussian, kl_divergence, posterior
from degp.nets import mlp_features
from degp.priors import NNGP, Centred, ExactGP, KernelPrior, MonteCarloNNGP, WeightPrior, as_prior, erf, relu
from tests import reference


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# The analytic NN-GP

# eight noisy points of a sine; hidden layers with bias variance 1, a read-out without bias, noise variance 0.04
GOLDEN_INPUTS = torch.linspace(-1.5, 1.5, 8, dtype=torch.float64)[:, None]
GOLDEN_TARGETS = torch.tensor([-0.3020, -0.7766, -0.9647, -0.2867, 0.3554, 1.0375, 0.8193, -1.1549]).double()[:, None]
GOLDEN_POINTS = torch.tensor([-3.0, -2.0, 0.0, 2.0, 3.0]).double()[:, None]
GOLDEN = {  # depth: log evidence, mean and standard deviation at the points
    1: (-22.827, [0.171, -0.276, 0.115, -1.577, -3.477], [0.700, 0.325, 0.148, 0.325, 0.700]),
    2: (-18.163, [0.231, -0.186, 0.075, -1.897, -4.061], [0.886, 0.376, 0.162, 0.376, 0.886]),
    3: (-16.316, [0.142, -0.176, 0.057, -2.027, -4.193], [1.018, 0.412, 0.171, 0.412, 1.018]),
}


@pytest.mark.parametrize("depth", GOLDEN)
def test_regression_on_eight_points_gives_the_published_numbers(depth):
    prior = NNGP(depth, weight_variances=2.0, bias_variances=[1.0] * depth + [0.0])
    gp = ExactGP.fit(prior, GOLDEN_INPUTS, GOLDEN_TARGETS, noise_variance=0.04)
    evidence, mean, std = (torch.tensor(values, dtype=torch.float64) for values in GOLDEN[depth])
    digits = {"rtol": 0, "atol": 6e-4}
    assert_close(gp.log_marginal_likelihood(), evidence, **digits)
    assert_close(gp.mean(GOLDEN_POINTS)[:, 0], mean, **digits)
    assert_close(gp.variance(GOLDEN_POINTS).sqrt(), std, **digits)


DUALS = [(relu, torch.relu), (erf, torch.erf)]


@pytest.mark.parametrize("left, right, cross", [(1.0, 1.0, 0.0), (2.0, 0.5, 0.9), (0.3, 1.7, -0.6), (1.0, 1.0, 1.0)])
@pytest.mark.parametrize("dual, activation", DUALS)
def test_dual_is_the_expected_product_of_activations(dual, activation, left, right, cross):
    closed = dual(*(torch.tensor([[value]], dtype=torch.float64) for value in (cross, left, right)))
    assert closed.item() == pytest.approx(reference.dual(activation, left, right, cross), abs=2e-5)


@pytest.mark.parametrize("dual, activation", DUALS)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_nngp_is_the_recursion_by_quadrature(depth, dual, activation):
    x, y = normal(1, 3), normal(1, 3, seed=1)
    weights, biases = [1.5, 2.0, 0.7][: depth + 1], [0.3, 0.0, 0.2][: depth + 1]
    pairs = {"l": (x, x), "r": (y, y), "c": (x, y)}
    k = {pair: weights[0] * float(a @ b.T) / 3 + biases[0] for pair, (a, b) in pairs.items()}
    for w, b in zip(weights[1:], biases[1:], strict=True):
        dense = {"l": (k["l"],) * 3, "r": (k["r"],) * 3, "c": (k["l"], k["r"], k["c"])}
        k = {pair: w * reference.dual(activation, *values) + b for pair, values in dense.items()}
    prior = NNGP(depth, weights, biases, dual)
    assert prior(x, y).item() == pytest.approx(k["c"], abs=1e-4)
    assert prior(x, x).item() == pytest.approx(k["l"], abs=1e-4)


@given(st.integers(0, 3), st.floats(0.1, 10.0))
def test_relu_nngp_without_biases_is_homogeneous(depth, scale):
    k, x, y = NNGP(depth, 2.0, 0.0), normal(4, 3), normal(5, 3, seed=1)
    assert_close(k(scale * x, y), scale * k(x, y))


def test_a_point_at_the_origin_has_the_biases_alone():
    k = NNGP(2, 2.0, [0.0, 0.0, 0.3])(torch.zeros(1, 3), normal(4, 3))
    assert_close(k, torch.full((1, 4), 0.3, dtype=torch.float64))


@pytest.mark.parametrize("prior", [NNGP(0), NNGP(2), NNGP(2, dual=erf)])
def test_constant_inputs_have_a_kernel_of_rank_one(prior):
    k = prior(torch.ones(4, 3), torch.ones(4, 3))
    assert_close(k, k[:1, :1].expand(4, 4))
    assert k[0, 0] > 0


@pytest.mark.parametrize("x", [torch.tensor([[0.1], [0.1], [2.0]]), torch.ones(3, 1)], ids=["repeated", "constant"])
def test_repeated_inputs_have_the_divergence_of_the_lifted_gram(x):
    gram, g = NNGP(2)(x, x), normal(5, 3, 2)
    q = posterior(g, diagonal=0.1)
    lifted = gram + 0.05 * gram.trace() / 3 * torch.eye(3)
    full_q, full_p = reference.covariance(q.deviations, q.diagonal), reference.kronecker(lifted, 2)
    expected = reference.kl_divergence(q.mean, full_q, torch.zeros_like(q.mean), full_p)
    assert_close(kl_divergence(q, KroneckerGaussian.from_gram(gram, 2, jitter=0.05)), expected)


# The Monte-Carlo NN-GP


@pytest.mark.parametrize("widths, draws", [([32], range(2, 9)), ([256, 256], range(0, 6))])
def test_monte_carlo_error_falls_with_the_root_of_the_draws(widths, draws):
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


def test_monte_carlo_kernel_equals_a_loop_over_networks(generator):
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


def test_monte_carlo_without_hidden_layers_is_linear_regression():
    x, y = normal(4, 3), normal(5, 3, seed=1)
    assert_close(MonteCarloNNGP(mlp_features(3, [])).kernel()(x, y), NNGP(0)(x, y))


def test_redraws_differ_and_a_bank_stays():
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


def test_monte_carlo_gram_is_positive_definite_under_autocast():
    x, prior = normal(64, 3, dtype=torch.float32), MonteCarloNNGP(mlp_features(3, [64]), num_draws=64)
    with torch.autocast("cpu", torch.bfloat16):
        gram = prior.kernel(generator=seeded(0))(x, x)
    assert torch.linalg.eigvalsh(gram)[0] > -1e-12 * gram.trace()
    assert_close(gram, prior.kernel(generator=seeded(0))(x, x), rtol=0.02, atol=0.02)


# Other kernels


def test_gpytorch_kernel_is_a_prior():
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    x, y = normal(4, 3), normal(5, 3, seed=1)
    length, scale = kernel.base_kernel.lengthscale.item(), kernel.outputscale.item()
    gram = as_prior(kernel).kernel()(x, y)
    assert_close(gram, scale * torch.exp(-0.5 * torch.cdist(x, y).square() / length**2))
    assert not gram.requires_grad


def test_what_is_a_prior_is_left_as_it_is():
    for prior in (NNGP(1), MonteCarloNNGP(nn.Linear(3, 2)), KernelPrior(lambda x, y: x @ y.T)):
        assert as_prior(prior) is prior


# Exact regression


def test_exact_regression_equals_dense():
    x, y, new, prior = normal(6, 2), normal(6, 3, seed=1), normal(4, 2, seed=2), NNGP(2)
    gp = ExactGP.fit(prior, x, y, noise_variance=0.3)
    mean, covariance, evidence = reference.gp_regression(prior(x, x), prior(x, new), prior(new, new), y, 0.3)
    assert_close(gp.mean(new), mean)
    assert_close(gp.covariance(new), covariance)
    assert_close(gp.variance(new, batch_size=3), covariance.diagonal())
    assert_close(gp.log_marginal_likelihood(), evidence)


def test_exact_regression_equals_gpytorch():
    x, y, new = normal(6, 2), normal(6, 1, seed=1), normal(4, 2, seed=2)

    class Theirs(gpytorch.models.ExactGP):
        def forward(self, inputs):
            kernel = gpytorch.kernels.RBFKernel().double()
            return gpytorch.distributions.MultivariateNormal(torch.zeros(len(inputs)).double(), kernel(inputs))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.3
    theirs = Theirs(x, y[:, 0], likelihood).eval()(new)
    ours = ExactGP.fit(gpytorch.kernels.RBFKernel().double(), x, y, noise_variance=0.3)
    assert_close(ours.mean(new)[:, 0], theirs.mean, rtol=1e-6, atol=1e-6)
    assert_close(ours.covariance(new), theirs.covariance_matrix, rtol=1e-6, atol=1e-6)


def test_regression_without_noise_goes_through_the_data():
    gp = ExactGP.fit(NNGP(2), GOLDEN_INPUTS, GOLDEN_TARGETS, noise_variance=0.0)
    assert_close(gp.mean(GOLDEN_INPUTS), GOLDEN_TARGETS, rtol=0, atol=1e-6)
    assert_close(gp.variance(GOLDEN_INPUTS), torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-6)


# Priors over weights

NETWORK = nn.Sequential(nn.Conv2d(6, 8, 3, groups=2), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 3, bias=False))


def test_variances_follow_the_fan_in_and_leave_batch_norm_alone():
    expected = {"0.weight": 2 / 27, "0.bias": 0.01, "3.weight": 2 / 8}
    assert WeightPrior().variances(NETWORK) == pytest.approx(expected)


def test_variances_a_layer_go_in_the_order_of_the_network():
    expected = {"0.weight": 1 / 27, "0.bias": 0.5, "3.weight": 4 / 8}
    assert WeightPrior([1.0, 4.0], [0.5, 0.7]).variances(NETWORK) == pytest.approx(expected)


@pytest.mark.parametrize(
    "layer, expected",
    [
        (nn.Linear(5, 2), {"weight": 2 / 5, "bias": 0.01}),
        (nn.Conv1d(4, 2, 3), {"weight": 2 / 12, "bias": 0.01}),
        (nn.Bilinear(3, 4, 2), {"weight": 2 / 12, "bias": 0.01}),
        (nn.GRU(3, 4), {"weight_ih_l0": 2 / 3, "weight_hh_l0": 2 / 4, "bias_ih_l0": 0.01, "bias_hh_l0": 0.01}),
        (nn.Embedding(3, 4), {}),
    ],
    ids=lambda case: type(case).__name__,
)
def test_variances_of_a_layer(layer, expected):
    assert WeightPrior().variances(layer) == pytest.approx(expected)


def test_a_tied_weight_counts_once():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    parameters = dict(network.named_parameters())
    squares = sum(
        value.square().sum() / (2 * (2 / 3 if "weight" in name else 0.01)) for name, value in parameters.items()
    )
    assert_close(WeightPrior().energy(network, parameters), squares)


def test_draws_have_the_variances(generator):
    prior, S = WeightPrior([1.0, 4.0], [0.5, 0.7]), 4000
    for name, draws in prior.draw(NETWORK, S, generator=generator).items():
        expected = prior.variances(NETWORK)[name]
        error = 4 * expected * math.sqrt(2 / draws.numel())
        assert draws.var().item() == pytest.approx(expected, abs=error)
        assert draws.mean().item() == pytest.approx(0, abs=4 * math.sqrt(expected / draws.numel()))
        assert torch.corrcoef(torch.stack([draws[:-1].flatten(), draws[1:].flatten()]))[0, 1].abs() < 0.05


def test_initialise_starts_from_a_draw_and_leaves_batch_norm_alone():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    started = WeightPrior().initialise(network, generator=seeded(0))
    drawn = WeightPrior().draw(network, 1, generator=seeded(0))
    assert started is network
    assert torch.equal(network[0].weight, drawn["0.weight"][0]) and torch.equal(network[0].bias, drawn["0.bias"][0])
    assert torch.equal(network[1].weight, torch.ones(4))


@pytest.mark.parametrize("anchored", [False, True])
def test_energy_equals_a_loop(anchored):
    prior, parameters = WeightPrior(3.0, 0.2), dict(NETWORK.named_parameters())
    anchors = prior.draw(NETWORK, 2, generator=seeded(0)) if anchored else {}
    members = {name: torch.stack([value, 2 * value]) for name, value in parameters.items()}
    total = 0.0
    for name, variance in (("0.weight", 3 / 27), ("0.bias", 0.2), ("3.weight", 3 / 8)):
        for member in range(2):
            anchor = anchors[name][member] if anchored else 0.0
            total += (members[name][member] - anchor).square().sum() / (2 * variance)
    assert_close(prior.energy(NETWORK, members, anchors), total)


# Arguments that cannot be

REFUSED = {
    "depth counts hidden layers and must not be negative, but it is -1": lambda: NNGP(-1),
    "weight_variances must not be negative, but the least is -2.0": lambda: NNGP(1, [1.0, -2.0]),
    "must be one number or depth + 1 = 3 of them (hidden layers and read-out), but there are 2": lambda: NNGP(
        2, 2.0, [1.0, 1.0]
    ),
    "num_draws must be at least 1, but it is 0": lambda: MonteCarloNNGP(nn.Linear(1, 1), num_draws=0),
    "variances must not be negative, but they are 2.0 (weights) and -1.0 (bias)": lambda: MonteCarloNNGP(
        nn.Linear(1, 1), readout_bias_variance=-1.0
    ),
    "the variances of weights must be positive, but the least is 0.0": lambda: WeightPrior([1.0, 0.0]),
    "the variances of biases must be positive, but the least is -0.1": lambda: WeightPrior(biases=-0.1),
    "one number or one a layer, but there are 3 for 2 layers": lambda: WeightPrior([1.0] * 3).variances(NETWORK),
    "noise_variance must not be negative, but it is -1.0": lambda: ExactGP.fit(
        NNGP(0), GOLDEN_INPUTS, GOLDEN_TARGETS, noise_variance=-1.0
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_a_prior_is_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message]()


def test_what_is_no_kernel_is_refused():
    with pytest.raises(TypeError, match=re.escape("be a kernel function k(x, x'), but it is a float; use for example")):
        as_prior(2.0)


def test_energy_has_the_right_gradient():
    parameters = {name: p.detach().double().requires_grad_() for name, p in NETWORK.named_parameters()}
    names = list(parameters)

    def energy(*values):
        return WeightPrior().energy(NETWORK, dict(zip(names, values, strict=True)))

    assert torch.autograd.gradcheck(energy, tuple(parameters.values()))
    assert torch.autograd.gradgradcheck(energy, tuple(parameters.values()))


# Centred priors

DEEP = NNGP(depth=12)  # nearly constant


@given(seed=st.integers(0, 1000), N=st.integers(2, 7), variance=st.floats(0.1, 10), offset=st.floats(0, 2))
def test_a_centred_prior_is_that_of_functions_without_their_average(seed, N, variance, offset):
    x = normal(N, 3, seed=seed)
    H = torch.eye(N, dtype=x.dtype) - 1 / N
    gram = Centred(DEEP, variance=variance, offset_variance=offset).kernel()(x, x)
    expected = H @ DEEP.kernel()(x, x) @ H
    expected = variance * expected / expected.diagonal().mean() + offset
    assert_close(gram, expected, atol=1e-9, rtol=1e-6)
    assert gram.diagonal().mean().item() == pytest.approx(variance + offset)
    assert torch.linalg.eigvalsh(gram).min() > -1e-8 * (variance + offset)


def test_a_centred_prior_has_the_covariance_of_centred_draws():
    x, points = normal(6, 3), normal(4, 3, seed=1)
    both = torch.cat([points, x])
    f = torch.distributions.MultivariateNormal(torch.zeros(10).double(), NNGP(depth=1).kernel()(both, both))
    torch.manual_seed(0)
    draws = f.sample((100_000,))
    draws = draws - draws[:, :4].mean(1, keepdim=True)
    expected = draws.mT @ draws / len(draws)
    expected = 2 * expected / expected.diagonal()[:4].mean() + 0.5
    prior = Centred(NNGP(depth=1), variance=2.0, offset_variance=0.5, reference=points)
    assert_close(prior.kernel()(x, x), expected[4:, 4:], atol=0.05, rtol=0.02)


def test_a_centred_prior_with_a_reference_is_one_kernel_for_all_points():
    left, right = normal(4, 3), normal(5, 3, seed=1)
    kernel = Centred(DEEP, reference=normal(6, 3, seed=2)).kernel()
    whole = kernel(both := torch.cat([left, right]), both)
    assert_close(kernel(left, right), whole[:4, 4:])
    assert_close(kernel(left, left), whole[:4, :4])
    assert_close(kernel(right, left), whole[4:, :4])
    assert kernel(left, right[:0]).shape == (4, 0)
    assert ExactGP.fit(Centred(DEEP, reference=left), left, left[:, :1], noise_variance=0.1).mean(right).shape == (5, 1)


def test_a_centred_prior_needs_a_reference_for_two_sets_of_points_and_sensible_variances():
    with pytest.raises(ValueError, match="give `Centred` a reference"):
        Centred(DEEP).kernel()(normal(4, 3), normal(5, 3))
    for bad in ({"variance": 0.0}, {"variance": math.nan}, {"offset_variance": -1.0}):
        with pytest.raises(ValueError, match="must be positive"):
            Centred(DEEP, **bad)


def test_a_prior_that_is_constant_leaves_the_offset():
    x = normal(4, 3)
    gram = Centred(KernelPrior(lambda a, b: torch.ones(len(a), len(b)).double()), offset_variance=0.3).kernel()(x, x)
    assert_close(gram, torch.full((4, 4), 0.3).double())


def test_a_centred_prior_draws_its_networks_anew_by_the_generator():
    prior, x = Centred(MonteCarloNNGP(mlp_features(3, [8]), num_draws=2)), normal(4, 3, dtype=torch.float32)
    first, again, other = (prior.kernel(generator=seeded(seed))(x, x) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
