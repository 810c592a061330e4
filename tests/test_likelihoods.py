"""Expectations under the posterior, and the predictions made of them, equal quadrature and sampling."""

import math
import re

import jaxtyping
import pytest
import torch
from torch import distributions
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close

from degp import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, LowRankGaussian
from degp.predictive import average_over, binary_entropy, entropy
from tests import reference
from tests.fixtures import normal, seeded
from tests.memory import LargestTensor


def random_posterior(M, N, C, scale=1.0):
    return LowRankGaussian(normal(N, C), scale * normal(M, N, C, seed=1), 0.1 * scale**2)


def drawn(q, num_draws):
    """Independent draws of a posterior, by its dense covariance."""
    return reference.draws(q.mean, reference.covariance(q.deviations, q.diagonal), num_draws)


# Log densities


def test_log_prob_is_that_of_torch():
    g, real, labels = normal(4, 6, 2), normal(6, 2, seed=1), torch.tensor([0, 1, 1, 0, 1, 0])
    bits = torch.stack([labels, 1 - labels], 1)
    assert_close(
        Gaussian(0.3).log_prob(g, real), distributions.Normal(g, math.sqrt(0.3)).log_prob(real.expand(4, 6, 2)).sum(-1)
    )
    assert_close(Categorical(0.5).log_prob(g, labels), distributions.Categorical(logits=g / 0.5).log_prob(labels))
    assert_close(
        Bernoulli(0.5).log_prob(g, bits), distributions.Bernoulli(logits=g / 0.5).log_prob(bits.double()).sum(-1)
    )
    f, s = g[..., :1], g[..., 1:]
    assert_close(
        HeteroscedasticGaussian(0.7).log_prob(g, real[:, :1]),
        distributions.Normal(f, (0.7 * s.exp()).sqrt()).log_prob(real[:, :1].expand(4, 6, 1)).sum(-1),
    )


# Expectations


def test_gaussian_expectation_equals_quadrature():
    q, y, likelihood = random_posterior(3, 4, 2), normal(4, 2, seed=2), Gaussian(0.3)
    std = reference.covariance(q.deviations, q.diagonal).diagonal().sqrt().view(4, 2)
    expected = [
        sum(
            reference.gauss_hermite(
                lambda f, n=n, c=c: distributions.Normal(f, math.sqrt(0.3)).log_prob(y[n, c]), q.mean[n, c], std[n, c]
            )
            for c in range(2)
        )
        for n in range(4)
    ]
    assert_close(likelihood.expected_log_prob(q, y), torch.stack(expected))


def test_heteroscedastic_expectation_equals_sampling():
    q, y, likelihood = random_posterior(3, 3, 4, scale=0.4), normal(3, 2, seed=2), HeteroscedasticGaussian(0.5)
    correlations = q.covariances()[:, :2, 2:].diagonal(dim1=1, dim2=2)
    assert correlations.abs().min() > 0.01  # of each f with its own s: the case that a factorised formula gets wrong
    expected = likelihood.expected_log_prob(q, y)
    values = likelihood.log_prob(drawn(q, 400_000), y)
    error = values.std(0) / math.sqrt(len(values))
    assert ((expected - values.mean(0)).abs() < 4 * error).all()
    assert (error < 0.01 * expected.abs()).all()


def test_heteroscedastic_expectation_equals_quadrature():
    q, y, base = random_posterior(3, 3, 2), normal(3, 1, seed=2), 0.5
    (mean_f, mean_s), blocks, expected = q.mean.T, q.covariances(), []
    for n, ((v_f, c), (_, v_s)) in enumerate(blocks):

        def given_noise(s, n=n, v_f=v_f, c=c, v_s=v_s):
            """E log p over f given s: f | s is Gaussian with these moments."""
            mean, variance = mean_f[n] + c / v_s * (s - mean_s[n]), v_f - c**2 / v_s
            noise = base * s.exp()
            return -0.5 * ((2 * math.pi * noise).log() + ((y[n] - mean) ** 2 + variance) / noise)

        expected.append(reference.gauss_hermite(given_noise, mean_s[n], v_s.sqrt()))
    assert_close(HeteroscedasticGaussian(base).expected_log_prob(q, y), torch.stack(expected))


def test_heteroscedastic_expectation_with_certain_noise_is_the_gaussian_one():
    q, y = random_posterior(3, 4, 1), normal(4, 1, seed=2)
    mean = torch.cat([q.mean, torch.full((4, 1), math.log(0.3))], 1)
    deviations = torch.cat([q.deviations, torch.zeros(3, 4, 1)], 2)
    diagonal = torch.cat([q.diagonal, torch.zeros(4, 1)], 1)
    both = LowRankGaussian(mean, deviations, diagonal)
    expected = Gaussian(0.3).expected_log_prob(q, y)
    assert_close(HeteroscedasticGaussian(1.0).expected_log_prob(both, y), expected)


def by_quadrature(q, log_prob):
    """E log p of each point for a likelihood that sees one Gaussian number per point, of the given moments."""
    return torch.stack([reference.gauss_hermite(log_prob, m, s) for m, s in zip(*q, strict=True)])


def two_classes():
    """Two classes depend on the difference of their functions alone."""
    q = random_posterior(3, 20, 2)
    blocks = q.covariances()
    moments = q.mean[:, 1] - q.mean[:, 0], (blocks[:, 0, 0] + blocks[:, 1, 1] - 2 * blocks[:, 0, 1]).sqrt()
    exact = by_quadrature(moments, lambda f: torch.nn.functional.logsigmoid(f / 0.7))
    return q, torch.ones(20, dtype=torch.long), exact


def one_binary_target():
    q = random_posterior(3, 20, 1)
    moments = q.mean[:, 0], q.variance()[:, 0].sqrt()
    exact = by_quadrature(moments, lambda f: torch.nn.functional.logsigmoid(-f / 0.7))
    return q, torch.zeros(20, 1), exact


@pytest.mark.parametrize("likelihood, case", [(Categorical, two_classes), (Bernoulli, one_binary_target)])
def test_monte_carlo_expectation_converges_to_quadrature(likelihood, case):
    (q, targets, exact), powers, generator, errors = case(), torch.arange(3.0, 11.0), seeded(), []
    for power in powers:
        estimator = likelihood(0.7, num_draws=int(2**power))
        values = torch.stack([estimator.expected_log_prob(q, targets, generator=generator) for _ in range(100)])
        errors.append((values - exact).square().mean().sqrt().log2())
    slope = torch.cov(torch.stack([powers, torch.stack(errors).float()]))[0, 1] / powers.var()
    assert slope.item() == pytest.approx(-0.5, abs=0.05)


# Gradients


@pytest.mark.parametrize(
    "likelihood, targets",
    [
        (Gaussian(0.3, learned=True), normal(3, 2, seed=2)),
        (HeteroscedasticGaussian(0.5), normal(3, 1, seed=2)),
        (Categorical(0.7, learned=True, num_draws=5), torch.tensor([0, 1, 1])),
        (Bernoulli(0.7, learned=True, num_draws=5), torch.tensor([[0, 1], [1, 1], [0, 0]])),
    ],
    ids=lambda case: type(case).__name__,
)
def test_gradients_of_the_expectation(likelihood, targets):
    likelihood.forward = lambda *parts: likelihood.expected_log_prob(
        LowRankGaussian(*parts), targets, generator=seeded()
    )
    own = dict(likelihood.named_parameters())

    def expected(mean, deviations, diagonal, *parameters):
        return functional_call(likelihood, dict(zip(own, parameters, strict=True)), (mean, deviations, diagonal))

    parts = normal(3, 2), normal(4, 3, 2, seed=1), 0.2 + normal(3, 2, seed=3).square()
    parameters = [parameter.detach().clone() for parameter in own.values()]
    assert gradcheck(expected, [part.requires_grad_() for part in (*parts, *parameters)])


@pytest.mark.parametrize("make", [Gaussian, Categorical, Bernoulli])
def test_only_what_is_learned_has_a_gradient(make):
    assert [parameter.requires_grad for parameter in make(0.5, learned=True).parameters()] == [True]
    assert [parameter.requires_grad for parameter in make(0.5).parameters()] == [False]


# Predictions for real targets


def test_gaussian_prediction_equals_sampling(generator):
    q = random_posterior(3, 4, 2)
    predictive = Gaussian(0.3).predictive(q)
    targets = predictive.sample(200_000, generator=generator)
    noisy = drawn(q, 200_000) + math.sqrt(0.3) * normal(200_000, 4, 2, seed=5)
    for draws in (targets, noisy):
        assert_close(draws.mean(0), predictive.mean, rtol=0, atol=0.03)
        assert_close(draws.var(0), predictive.total, rtol=0.02, atol=0)
    covered = (targets > predictive.interval(0.8)[0]) & (targets < predictive.interval(0.8)[1])
    assert_close(covered.double().mean(0), torch.full((4, 2), 0.8).double(), rtol=0, atol=0.005)


def test_heteroscedastic_prediction_equals_sampling():
    q, S = random_posterior(3, 4, 2, scale=0.4), 400_000
    predictive = HeteroscedasticGaussian(0.7).predictive(q)
    f, s = drawn(q, S).chunk(2, -1)
    y = f + (0.7 * s.exp()).sqrt() * normal(S, 4, 1, seed=5)
    assert_close(y.mean(0), predictive.mean, rtol=0, atol=0.02)
    assert_close(y.var(0), predictive.total, rtol=0.03, atol=0)
    assert_close(f.var(0), predictive.epistemic, rtol=0.03, atol=0)


def test_mixtures_of_gaussians_have_the_moments_by_hand():
    g, s = normal(5, 3, 2), normal(5, 3, 2, seed=1)
    mean = sum(g) / 5
    spread = sum((member - mean) ** 2 for member in g) / 5
    one, two = Gaussian(0.3).mixture(g), HeteroscedasticGaussian(0.7).mixture(torch.cat([g, s], 2))
    for predictive, noise in ((one, 0.3), (two, sum(0.7 * member.exp() for member in s) / 5)):
        assert_close(predictive.mean, mean)
        assert_close(predictive.total, spread + noise)
        assert_close(predictive.epistemic, spread)


def test_log_prob_of_real_targets_is_that_of_torch():
    predictive, y = Gaussian(0.3).predictive(random_posterior(3, 4, 2)), normal(4, 2, seed=2)
    expected = distributions.Normal(predictive.mean, predictive.total.sqrt()).log_prob(y).sum(-1)
    assert_close(predictive.log_prob(y), expected)


def test_targets_of_another_shape_have_no_log_prob():
    """(N,) and (N, 1) would broadcast to (N, N)."""
    predictive = Gaussian(0.3).predictive(random_posterior(3, 4, 1))
    with pytest.raises(ValueError, match=r"one column per output, \(N, C\) = \(4, 1\), but their shape is \(4, 4\)"):
        predictive.log_prob(normal(4, 4))


@pytest.mark.parametrize("make", [Gaussian, HeteroscedasticGaussian])
def test_widening_multiplies_the_noise(make):
    q, likelihood = random_posterior(3, 4, 2), make(0.3)
    before = likelihood.predictive(q)
    likelihood.widen(2.0)
    assert_close(likelihood.predictive(q).aleatoric, 2 * before.aleatoric)
    assert_close(likelihood.predictive(q).epistemic, before.epistemic)


@pytest.mark.parametrize("make", [Categorical, Bernoulli])
def test_widening_multiplies_the_temperature(make):
    likelihood, g = make(0.3), normal(5, 4, 2)
    likelihood.widen(2.0)
    assert_close(likelihood.probabilities(g), make(0.6).probabilities(g))


# Predictions for classes


@pytest.mark.parametrize("make", [Categorical, Bernoulli])
def test_epistemic_is_the_mutual_information(make):
    likelihood, g = make(0.6), normal(7, 4, 3)
    p = likelihood.probabilities(g)
    outcomes = p if make is Categorical else torch.stack([p, 1 - p], -1).flatten(2)
    mean = outcomes.mean(0)
    divergence = (outcomes * (outcomes / mean).log()).sum(-1).mean(0)  # E KL[p(y | f) ‖ p(y)]
    predictive = likelihood.mixture(g)
    assert_close(predictive.probabilities, p.mean(0))
    assert_close(predictive.epistemic, divergence)
    assert_close(predictive.total, -(mean * mean.log()).sum(-1))
    assert_close(predictive.aleatoric + predictive.epistemic, predictive.total)


def test_certain_classes_have_no_entropy():
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert_close(entropy(p), torch.tensor([0.0, math.log(2)]))
    assert_close(binary_entropy(p), torch.tensor([0.0, 2 * math.log(2)]))


def test_log_prob_of_labels_is_that_of_the_mixture():
    g, labels = normal(5, 4, 3), torch.tensor([0, 2, 1, 1])
    expected = torch.stack([g.softmax(-1)[:, n, label].mean().log() for n, label in enumerate(labels)])
    assert_close(Categorical().mixture(g).log_prob(labels), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32])
def test_labels_may_be_any_whole_numbers(dtype):
    labels = torch.tensor([0, 2, 1, 1]).to(dtype)
    Categorical().check(labels, 3)
    Categorical().check_values(labels, 3)
    with pytest.raises(ValueError, match=r"labels must lie in 0 … 1, .* reach from 0 to 2"):
        Categorical().check_values(labels, 2)


def test_labels_are_the_most_probable():
    assert Categorical().mixture(torch.tensor([[[0.0, 3.0, 1.0], [2.0, 0.0, 1.0]]])).labels.tolist() == [1, 0]


def test_binary_targets_are_predicted_one_by_one():
    g, targets = normal(5, 4, 3), torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]])
    prediction, p = Bernoulli().mixture(g), g.sigmoid().mean(0)
    assert_close(prediction.log_prob(targets), distributions.Bernoulli(p).log_prob(targets.double()).sum(1))
    assert torch.equal(prediction.labels, (g.sigmoid().mean(0) > 0.5).long())


@pytest.mark.parametrize("make", [Categorical, Bernoulli])
def test_no_points_have_empty_predictions(make):
    prediction = make().predictive(random_posterior(3, 4, 2).marginal(slice(0)))
    assert prediction.probabilities.shape == (0, 2) and prediction.total.shape == (0,)


@pytest.mark.parametrize("make", [Categorical, Bernoulli])
@pytest.mark.parametrize("most_values", [1, 2**17, 2**24])
def test_prediction_in_chunks_is_the_expectation(make, most_values):
    q, likelihood = random_posterior(3, 4, 3), make(0.6)
    p = likelihood.probabilities(drawn(q, 200_000))
    measure = entropy if make is Categorical else binary_entropy
    predictive = average_over(q, likelihood.mixture, 20_000, generator=seeded(), most_values=most_values)
    assert_close(predictive.probabilities, p.mean(0), rtol=0, atol=0.015)
    assert_close(predictive.aleatoric, measure(p).mean(0), rtol=0, atol=0.015)
    assert_close(predictive.total, measure(p.mean(0)), rtol=0, atol=0.02)


def test_prediction_in_chunks_bounds_its_memory():
    q, likelihood = random_posterior(4, 400, 10), Categorical()
    with LargestTensor() as largest:
        average_over(q, likelihood.mixture, 100, most_values=2**16)
    assert largest.elements <= 2**16


@pytest.mark.parametrize("make", [Categorical, Bernoulli])
def test_a_large_temperature_gives_uniform_probabilities(make):
    likelihood = make(1e6)
    predictive = likelihood.predictive(random_posterior(3, 4, 2), generator=seeded())
    assert_close(predictive.probabilities, torch.full((4, 2), 0.5).double(), rtol=0, atol=1e-4)
    assert (predictive.epistemic.abs() < 1e-8).all()


# Invalid targets and arguments

REAL, LABELS = torch.zeros(4, 2), torch.tensor([0, 1, 2, 1])
REFUSED = {
    "real targets must be floating-point rows (N, 2), one column per output of the network, but they are torch.float32 "
    "of shape (4,); a single target is targets[:, None]": lambda: Gaussian().check(torch.zeros(4), 2),
    "(N, 2), one column per output of the network, but they are torch.int64": lambda: Gaussian().check(REAL.long(), 2),
    "(N, 1), one column per output of the network, but they are torch.float32 of shape (4, 2)": lambda: (
        HeteroscedasticGaussian().check(REAL, 2)
    ),
    "its mean and its log variance, but the network has 3; give it an even number": lambda: (
        HeteroscedasticGaussian().check(REAL, 3)
    ),
    "targets must be finite, but 2 of 4 rows have NaN or infinite values, the first is row 1": lambda: (
        Gaussian().check_values(torch.tensor([[0.0], [math.nan], [1.0], [math.inf]]), 1)
    ),
    "class labels must be whole numbers, one per point (N,), but targets are torch.float32 of shape (4,)": lambda: (
        Categorical().check(LABELS.float(), 3)
    ),
    "but targets are torch.int64 of shape (4, 1)": lambda: Categorical().check(LABELS[:, None], 3),
    "but targets are torch.bool of shape (4,)": lambda: Categorical().check(LABELS > 0, 2),
    "labels must lie in 0 … 1, since the network has 2 outputs, but they reach from 0 to 2": lambda: (
        Categorical().check_values(LABELS, 2)
    ),
    "but they reach from -1 to 1; number the classes from 0": lambda: Categorical().check_values(LABELS - 1, 3),
    "one column per output, (N, 1), but their shape is (4,); use targets[:, None]": lambda: Bernoulli().check(
        LABELS, 1
    ),
    "binary targets must be 0 or 1, but they include 2": lambda: Bernoulli().check_values(LABELS[:, None], 1),
    "variance must be positive and finite, but it is 0.0": lambda: Gaussian(0.0),
    "variance must be positive and finite, but it is inf": lambda: Gaussian(math.inf),
    "variance must be positive and finite, but it is []": lambda: Gaussian([]),
    "variance must be positive and finite, but it is [0.5, -1.0]": lambda: Gaussian([0.5, -1.0]),
    "unit must be positive and finite, but it is [1.0, 0.0]": lambda: Gaussian(units=([0.0, 0.0], [1.0, 0.0])),
    "units must be an offset and a unit per output, but they are ([0.0, 1.0], [1.0])": lambda: Gaussian(
        units=([0.0, 1.0], [1.0])
    ),
    "base_variance must be positive and finite, but it is -1.0": lambda: HeteroscedasticGaussian(-1.0),
    "temperature must be positive and finite, but it is 0.0": lambda: Categorical(0.0),
    "temperature must be positive and finite, but it is nan": lambda: Bernoulli(math.nan),
    "units must be those of each target, or one for all, but there are 2 and the network has 1 outputs": lambda: (
        Gaussian(units=UNITS).check(REAL[:, :1], 1)
    ),
    "num_draws counts draws of the function and must be at least 1, but it is 0": lambda: Categorical(num_draws=0),
    "must be at least 1, but it is -1": lambda: Bernoulli(num_draws=-1),
    "draws of the function and must be at least 1, but it is 0": lambda: Categorical().predictive(
        random_posterior(2, 3, 2), num_draws=0
    ),
    "level is a probability between 0 and 1, but it is 90.0": lambda: (
        Gaussian().predictive(random_posterior(2, 3, 1)).interval(90.0)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_targets_and_arguments_are_refused(message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, who have no shape checks
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message]()


def test_the_floor_bounds_a_learned_noise_variance_and_is_widened_with_it():
    likelihood = Gaussian(0.5, learned=True, floor=0.2)
    assert float(likelihood.variance.detach()) == pytest.approx(0.5)
    likelihood.widen(3.0)
    assert float(likelihood.variance.detach()) == pytest.approx(1.5)
    with torch.no_grad():
        likelihood.log_variance.fill_(-100.0)
    assert float(likelihood.variance.detach()) == pytest.approx(0.6)
    with pytest.raises(ValueError, match=r"floor must be at least 0 and less than the variance 0\.1, but it is 0\.1"):
        Gaussian(0.1, floor=0.1)


UNITS = ([3.0, -1.0], [1e-3, 1e4])


def test_units_are_a_change_of_variables():
    """y = o + u (f + noise): densities by the Jacobian, moments by o and u, whatever the units of the other output."""
    q, y, plain, own = random_posterior(3, 4, 2), normal(4, 2, seed=2), Gaussian([0.3, 0.7]), torch.tensor(UNITS[1])
    scaled, offset, unit = Gaussian([0.3, 0.7], units=UNITS), torch.tensor(UNITS[0]).double(), own.double()
    targets, jacobian = offset + unit * y, unit.log().sum()
    assert_close(scaled.expected_log_prob(q, targets), plain.expected_log_prob(q, y) - jacobian)
    g = normal(5, 4, 2, seed=3)
    assert_close(scaled.log_prob(g, targets), plain.log_prob(g, y) - jacobian)
    for one, other in (
        (scaled.predictive(q), plain.predictive(q)),
        (scaled.mixture(g), plain.mixture(g)),
    ):
        assert_close(one.mean, offset + unit * other.mean)
        assert_close(one.aleatoric, unit.square() * other.aleatoric)
        assert_close(one.epistemic, unit.square() * other.epistemic)
        assert_close(one.log_prob(targets), other.log_prob(y) - jacobian)


def test_noise_may_differ_between_outputs():
    q, y, likelihood = random_posterior(3, 4, 2), normal(4, 2, seed=2), Gaussian([0.3, 0.7])
    one_by_one = sum(
        Gaussian(variance).expected_log_prob(
            LowRankGaussian(q.mean[:, [c]], q.deviations[..., [c]], q.diagonal[:, [c]]), y[:, [c]]
        )
        for c, variance in enumerate((0.3, 0.7))
    )
    assert_close(likelihood.expected_log_prob(q, y), one_by_one)
    with pytest.raises(ValueError, match=r"one noise variance per output, .*, but there are 2 and the network has 3"):
        likelihood.check(normal(4, 3), 3)
