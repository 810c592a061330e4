"""Laws that every prior, likelihood and method obeys: a new one joins by a line in the tables below."""

from dataclasses import replace

import gpytorch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from degp import Batch, Bernoulli, Categorical, Ensemble, Gaussian, HeteroscedasticGaussian, LowRankGaussian, UniformBox
from degp.methods import batch_loss, de, degp, rde, rms
from degp.nets import mlp, mlp_features
from degp.priors import NNGP, MonteCarloNNGP, WeightPenalty, as_prior, erf
from tests.fixtures import normal, seeded

PRIORS = {
    "linear": NNGP(0),
    "NNGP": NNGP(2),
    "NNGP by layer": NNGP(2, [1.0, 2.0, 3.0], [0.5, 0.0, 0.1]),
    "NNGP erf": NNGP(2, dual=erf),
    "Monte Carlo": MonteCarloNNGP(mlp_features(3, [16, 16])),
    "Monte-Carlo bank": MonteCarloNNGP(mlp_features(3, [16])).fixed(generator=torch.Generator().manual_seed(0)),
    "gpytorch": as_prior(gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel())),
    "function": as_prior(lambda x, y: torch.exp(-torch.cdist(x, y))),
}
LIKELIHOODS = {  # with the number of outputs, and targets for N points
    "Gaussian": (Gaussian(0.3), 2, lambda N: normal(N, 2, seed=8)),
    "heteroscedastic": (HeteroscedasticGaussian(0.3), 4, lambda N: normal(N, 2, seed=8)),
    "categorical": (Categorical(0.7), 3, lambda N: torch.arange(N) % 3),
    "Bernoulli": (Bernoulli(0.7), 2, lambda N: (normal(N, 2, seed=8) > 0).long()),
}
METHODS = {
    "de": lambda likelihood, ensemble: de(likelihood),
    "rde": lambda likelihood, ensemble: rde(likelihood),
    "rms": lambda likelihood, ensemble: rms(likelihood, ensemble, generator=seeded()),
    "degp": lambda likelihood, ensemble: degp(likelihood, NNGP(1)),
    "degp everything": lambda likelihood, ensemble: degp(
        likelihood,
        MonteCarloNNGP(mlp_features(3, [8]).double()),
        alpha=0.3,
        beta=0.1,
        measurement=UniformBox(-2.0, 2.0, 4),
    ),
}

priors = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
likelihoods = pytest.mark.parametrize("likelihood, C, make", LIKELIHOODS.values(), ids=LIKELIHOODS)
methods = pytest.mark.parametrize("make_method", METHODS.values(), ids=METHODS)


# Priors


@priors
@given(seed=st.integers(0, 2**32 - 1), N=st.integers(1, 12))
def test_gram_is_symmetric_and_positive(prior, seed, N):
    x = normal(N, 3, seed=seed, dtype=torch.float32)
    gram = prior.kernel(generator=seeded(seed))(x, x).double()
    assert_close(gram, gram.T, rtol=1e-6, atol=1e-6)
    assert torch.linalg.eigvalsh(gram)[0] > -1e-5 * gram.trace()
    assert (gram.diagonal() > 0).all()


@priors
def test_kernel_of_some_points_is_a_block_of_the_gram(prior):
    x, kernel = normal(7, 3, dtype=torch.float32), prior.kernel(generator=seeded())
    assert_close(kernel(x[:4], x[4:]), kernel(x, x)[:4, 4:], rtol=1e-5, atol=1e-5)


@priors
def test_kernel_repeats_with_its_generator_and_has_no_gradient(prior):
    x = normal(5, 3, dtype=torch.float32).requires_grad_()
    one, two = (prior.kernel(generator=seeded(3))(x, x) for _ in range(2))
    assert torch.equal(one, two) and not one.requires_grad


# Likelihoods


@likelihoods
def test_points_are_independent_given_the_function(likelihood, C, make):
    g, y = normal(5, 6, C), make(6)
    assert_close(likelihood.log_prob(g, y)[:, 2:4], likelihood.log_prob(g[:, 2:4], y[2:4]))


@likelihoods
def test_expectation_of_a_point_is_independent_of_the_other_points(likelihood, C, make):
    q, y = LowRankGaussian(normal(6, C), normal(4, 6, C, seed=1), 0.0), make(6)  # without a diagonal: the same draws
    together = likelihood.expected_log_prob(q, y, generator=seeded())
    alone = likelihood.expected_log_prob(q.marginal(slice(2, 4)), y[2:4], generator=seeded())
    assert_close(together[2:4], alone)


@likelihoods
def test_expectation_under_a_certain_function_is_its_log_prob(likelihood, C, make):
    mean, y = normal(6, C), make(6)
    q = LowRankGaussian(mean, 1e-9 * normal(4, 6, C, seed=1), 1e-18)
    assert_close(likelihood.expected_log_prob(q, y, generator=seeded()), likelihood.log_prob(mean[None], y)[0])


@likelihoods
def test_prediction_of_a_certain_function_is_that_of_agreeing_members(likelihood, C, make):
    mean = normal(6, C)
    one = likelihood.predictive(LowRankGaussian(mean, 0 * normal(4, 6, C), 0.0), generator=seeded())
    two = likelihood.mixture(mean.expand(3, 6, C))
    for name in ("total", "aleatoric", "epistemic"):
        assert_close(getattr(one, name), getattr(two, name), check_dtype=False)
    assert (one.epistemic.abs() < 1e-12).all()


@likelihoods
def test_uncertainties_add_up_and_are_not_negative(likelihood, C, make):
    q = LowRankGaussian(normal(6, C), normal(4, 6, C, seed=1), 0.1)
    for predictive in (likelihood.predictive(q, generator=seeded()), likelihood.mixture(normal(5, 6, C))):
        assert_close(predictive.total, predictive.aleatoric + predictive.epistemic)
        assert (predictive.epistemic > 0).all() and (predictive.aleatoric > 0).all()


@likelihoods
def test_mixture_is_invariant_to_the_order_of_members(likelihood, C, make):
    g = normal(5, 6, C)
    one, two = likelihood.mixture(g), likelihood.mixture(g[[3, 0, 4, 1, 2]])
    assert_close(one.total, two.total)
    assert_close(one.aleatoric, two.aleatoric)


@likelihoods
def test_likelihood_accepts_its_own_targets(likelihood, C, make):
    likelihood.check(make(6), C)
    likelihood.check_values(make(6), C)


# Methods


def case(C=2, make=LIKELIHOODS["Gaussian"][2]):
    torch.manual_seed(0)
    return Ensemble(lambda: mlp(3, [5], C), 4).double(), Batch(normal(6, 3), make(6), 30)


@methods
def test_members_are_exchangeable(make_method):
    ensemble, batch = case()
    order = [2, 0, 3, 1]
    method = make_method(Gaussian(), ensemble)
    before = batch_loss(ensemble, batch, method, generator=seeded()).total
    if isinstance(method.penalty, WeightPenalty):  # a member keeps its anchor
        for anchor in method.penalty.anchors.buffers():
            anchor.copy_(anchor[order].clone())
    assert_close(batch_loss(ensemble[order], batch, method, generator=seeded()).total, before)


@methods
def test_points_of_a_batch_are_exchangeable(make_method):
    ensemble, batch = case()
    method = make_method(Gaussian(), ensemble)
    shuffled = batch[torch.tensor([3, 5, 0, 1, 4, 2])]
    one, two = (batch_loss(ensemble, rows, method, generator=seeded()).total for rows in (batch, shuffled))
    assert_close(one, two)


@methods
@likelihoods
def test_every_weight_has_a_finite_gradient(make_method, likelihood, C, make):
    ensemble, batch = case(C, make)
    loss = batch_loss(ensemble, batch, make_method(likelihood, ensemble), generator=seeded())
    loss.total.backward()
    assert not loss.non_finite()
    for parameter in ensemble.parameters():
        assert parameter.grad.isfinite().all() and parameter.grad.abs().sum() > 0


@methods
@likelihoods
def test_weights_of_one_change_no_bit(make_method, likelihood, C, make):
    ensemble, batch = case(C, make)
    method = make_method(likelihood, ensemble)
    weighted = replace(batch, weights=torch.ones(len(batch)))
    plain, same = (batch_loss(ensemble, each, method, generator=seeded()).total for each in (batch, weighted))
    assert torch.equal(plain, same)


@methods
@likelihoods
def test_a_weight_multiplies_the_data_term_of_its_point(make_method, likelihood, C, make):
    """The derivative of the loss by the weights is M/B times each point's own share of the data term."""
    ensemble, batch = case(C, make)
    method, weights = make_method(likelihood, ensemble), (0.1 + normal(len(batch)).abs()).requires_grad_()

    def loss(weights):
        return batch_loss(ensemble, replace(batch, weights=weights), method, generator=seeded())

    own = loss(weights)
    shares = torch.autograd.grad(own.total, weights)[0] / len(ensemble)
    assert_close(shares @ weights.detach(), own.terms["data"])  # linear in the weights
    assert_close(loss(torch.zeros(len(batch))).terms["data"].double(), torch.zeros((), dtype=torch.float64))
    for point, share in enumerate(shares):
        alone = loss(torch.eye(len(batch), dtype=torch.float64)[point])
        assert_close(alone.terms["data"], share)


@likelihoods
def test_weighted_expectations_have_the_right_gradient(likelihood, C, make):
    weights = 0.1 + normal(4).abs()
    batch = Batch(normal(4, 3), make(4), weights=weights)

    def expectation(mean, deviations):
        q = LowRankGaussian(mean, deviations, 0.1)
        return batch.weigh(likelihood.expected_log_prob(q, batch.targets, generator=seeded())).sum()

    def members(outputs):
        return batch.weigh(likelihood.log_prob(outputs, batch.targets)).sum()

    mean, deviations = normal(4, C).requires_grad_(), (0.3 * normal(3, 4, C, seed=1)).requires_grad_()
    assert torch.autograd.gradcheck(expectation, (mean, deviations))
    assert torch.autograd.gradcheck(members, (deviations,))


@pytest.mark.parametrize("name", ["de", "rde", "rms"])
@likelihoods
def test_a_whole_number_as_weight_is_a_repeated_row(name, likelihood, C, make):
    """B times the loss of a full batch is Σ w log p and the penalty, which repeated rows give too."""
    ensemble, batch = case(C, make)
    counts = torch.arange(len(batch)) % 4  # a row of weight 0 is absent
    rows = torch.arange(len(batch)).repeat_interleave(counts)
    method = METHODS[name](likelihood, ensemble)
    weighted = batch_loss(ensemble, Batch(batch.inputs, batch.targets, len(batch), weights=counts.double()), method)
    repeated = batch_loss(ensemble, Batch(batch.inputs[rows], batch.targets[rows], len(rows)), method)
    assert_close(len(batch) * weighted.total, len(rows) * repeated.total, rtol=1e-12, atol=0)


@likelihoods
def test_a_weight_of_two_is_every_row_twice_for_the_process(likelihood, C, make):
    """λ is a mean over the points, so that the posterior is the same where all of them are repeated alike."""
    if isinstance(likelihood, Categorical | Bernoulli):
        pytest.skip("its expectation draws other numbers for other rows")
    ensemble, batch = case(C, make)
    method, rows = METHODS["degp"](likelihood, ensemble), torch.arange(len(batch)).repeat(2)
    twice = torch.full((len(batch),), 2.0)
    weighted = batch_loss(ensemble, Batch(batch.inputs, batch.targets, len(batch), weights=twice), method).terms
    repeated = batch_loss(ensemble, Batch(batch.inputs[rows], batch.targets[rows], len(rows)), method).terms
    assert_close(weighted["data"], 2 * repeated["data"], rtol=1e-12, atol=0)


@methods
def test_loss_repeats_with_its_generator(make_method):
    likelihood, C, make = LIKELIHOODS["categorical"]
    ensemble, batch = case(C, make)
    method = make_method(likelihood, ensemble)
    one, two = (batch_loss(ensemble, batch, method, generator=seeded(3)).total for _ in range(2))
    assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["de", "rde", "rms", "degp"])  # the last of the table draws, differently in each dtype
def test_float32_and_float64_agree(name):
    ensemble, batch = case()
    method = METHODS[name](Gaussian(), ensemble)
    precise = batch_loss(ensemble, batch, method).total
    single = batch_loss(ensemble.float(), batch.to(dtype=torch.float32), method).total
    assert_close(single.double(), precise, rtol=1e-5, atol=1e-5)
