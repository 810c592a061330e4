"""Objectives equal their formulas assembled from plain pieces, weigh members alike, and lead to the exact posterior."""

import math
import re
from dataclasses import replace

import jaxtyping
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import (
    Batch,
    BatchPart,
    Categorical,
    Ensemble,
    Gaussian,
    HeteroscedasticGaussian,
    MeasurementAlone,
    UniformBox,
    batch_loss,
    ensemble_posterior,
    methods,
    no_points,
)
from degp.gaussian import KroneckerGaussian, LowRankGaussian, kl_divergence
from degp.methods import DEGP, Kind, Method, Prepared, de, degp, rde, require_method, rms
from degp.nets import mlp
from degp.priors import NNGP, ExactGP, MonteCarloNNGP, WeightPrior
from tests import reference


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def small_ensemble(M=4, D=2, C=2, **more):
    torch.manual_seed(0)
    return Ensemble(lambda: mlp(D, [5], C), M, **more).double()


def small_batch(B=6, D=2, C=2, population=30):
    return Batch(normal(B, D), normal(B, C, seed=1), population)


def gradients(method, ensemble, batch):
    loss = batch_loss(ensemble, batch, method, generator=seeded()).total
    return torch.autograd.grad(loss, list(ensemble.parameters()))


def energy(network, weights=2.0, biases=1.0):
    """½ Σ w² / σ₀² of a network's linear layers, layer by layer."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return sum(
        layer.weight.square().sum() * layer.in_features / (2 * weights) + layer.bias.square().sum() / (2 * biases)
        for layer in layers
    )


# Members by themselves


def test_de_is_the_sum_over_members_of_the_mean_loss():
    ensemble, batch = small_ensemble(), small_batch()
    noise = torch.distributions.Normal(0.0, math.sqrt(0.3))
    by_hand = sum(-noise.log_prob(batch.targets - g(batch.inputs)).sum(1).mean() for g in ensemble.to_modules())
    assert_close(batch_loss(ensemble, batch, de(Gaussian(0.3))).total, by_hand)


def test_de_of_classes_is_the_sum_of_cross_entropies():
    ensemble, labels = small_ensemble(C=3), torch.tensor([0, 2, 1, 1, 0, 2])
    batch = Batch(normal(6, 2), labels, population=6)
    by_hand = sum(nn.functional.cross_entropy(g(batch.inputs) / 0.5, labels) for g in ensemble.to_modules())
    assert_close(batch_loss(ensemble, batch, de(Categorical(0.5))).total, by_hand)


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_rde_is_de_plus_the_prior_over_weights_per_data_point(weight):
    ensemble, batch = small_ensemble(), small_batch(population=30)
    penalty = weight / 30 * sum(energy(g) for g in ensemble.to_modules())
    loss = batch_loss(ensemble, batch, rde(Gaussian(), weight=weight))
    plain = batch_loss(ensemble, batch, de(Gaussian()))
    assert_close(loss.total, plain.total + penalty)
    assert_close(loss.terms["penalty"], penalty.detach())


def test_rms_pulls_each_member_to_its_own_anchor():
    ensemble, batch = small_ensemble(), small_batch()
    method = rms(Gaussian(), ensemble, generator=seeded())
    anchors = method.penalty.anchors[0]
    with torch.no_grad():
        for name, parameter in ensemble.stacked.named_parameters():
            parameter.copy_(getattr(anchors, name.replace(".", "/")))
    loss = batch_loss(ensemble, batch, method)
    assert loss.terms["penalty"] == 0
    assert_close(loss.total, batch_loss(ensemble, batch, de(Gaussian())).total)


def test_rms_anchors_are_draws_of_the_prior_apart_from_the_start_and_from_each_other():
    prior = WeightPrior(2.0, 0.5)
    ensemble = Ensemble(lambda: prior.initialise(nn.Linear(300, 10)), 3)
    anchors = rms(Gaussian(), ensemble, prior, generator=seeded()).penalty.anchors[0].weight.flatten(1)
    start = ensemble.stacked.weight.detach().flatten(1)
    correlations = torch.corrcoef(torch.cat([start, anchors])) - torch.eye(6)
    assert correlations.abs().max() < 0.1  # 3000 weights each: chance gives 0.02
    assert_close(anchors.var(1), torch.full((3,), 2 / 300), rtol=0.15, atol=0)


def test_rms_anchors_are_saved():
    ensemble, batch = small_ensemble(), small_batch()
    one, other = (rms(Gaussian(), ensemble, generator=seeded(seed)) for seed in (0, 1))
    assert not torch.equal(batch_loss(ensemble, batch, one).total, batch_loss(ensemble, batch, other).total)
    other.load_state_dict(one.state_dict())
    assert torch.equal(batch_loss(ensemble, batch, one).total, batch_loss(ensemble, batch, other).total)
    assert not list(one.penalty.parameters())


@pytest.mark.parametrize("make", [rde, lambda likelihood: degp(likelihood, NNGP(1), beta=1.0)], ids=["rde", "degp"])
def test_backbone_is_penalised_once_per_member(make):
    torch.manual_seed(0)
    shared = Ensemble(lambda: mlp(5, [], 2), 4, backbone=mlp(2, [4], 5)).double()
    apart = Ensemble(shared.to_modules())
    batch = small_batch()
    assert_close(batch_loss(shared, batch, make(Gaussian())).total, batch_loss(apart, batch, make(Gaussian())).total)


def test_rms_with_a_backbone_has_one_anchor_for_it():
    backbone = mlp(2, [4], 5)
    ensemble = Ensemble(lambda: mlp(5, [], 2), 4, backbone=backbone)
    heads, shared = rms(Gaussian(), ensemble, generator=seeded()).penalty.anchors
    assert getattr(heads, "0/weight").shape == (4, 2, 5)
    assert getattr(shared, "0/weight").shape == backbone[0].weight.shape


def test_a_backbone_without_weights_needs_no_anchor():
    ensemble, batch = (
        Ensemble(lambda: nn.Linear(2, 1), 3, backbone=nn.Flatten()),
        Batch(torch.zeros(4, 2, 1), torch.zeros(4, 1), population=4),
    )
    alone = Ensemble(ensemble.to_modules())
    with_it, without = (
        batch_loss(both, batch, rms(Gaussian(), both, generator=seeded())).total for both in (ensemble, alone)
    )
    assert_close(with_it, without)


# The ensemble as a Gaussian process


@pytest.mark.parametrize("alpha, beta, extra", [(1.0, 0.0, 0), (0.3, 0.0, 5), (0.3, 0.7, 5), (0.0, 0.2, 3)])
def test_degp_is_its_formula(alpha, beta, extra):
    M, B, C, epsilon, variance = 4, 6, 2, 0.1, 0.3
    ensemble, batch, prior = small_ensemble(M), small_batch(B, population=30), NNGP(1)
    nu = normal(extra, 2, seed=3)
    method = degp(
        Gaussian(variance),
        prior,
        alpha=alpha,
        beta=beta,
        epsilon=epsilon,
        measurement=lambda inputs, *, generator=None: nu,
    )

    points, members = torch.cat([batch.inputs, nu]), ensemble.to_modules()
    g = torch.stack([member(points) for member in members])
    mean, central = g.mean(0), reference.covariance((g - g.mean(0)) / M**0.5, torch.zeros_like(g[0]))
    full_q = central + epsilon * central.diagonal().mean() * torch.eye(len(central))
    gram = prior(points, points)
    full_p = reference.kronecker(gram + epsilon * gram.diagonal().mean() * torch.eye(len(gram)), C)
    kl = reference.kl_divergence(mean, full_q, torch.zeros_like(mean), full_p)
    squares = (batch.targets - mean[:B]).square() + full_q.diagonal().view(-1, C)[:B]
    data = 0.5 * (math.log(2 * math.pi * variance) + squares / variance).sum()
    penalty = beta / 30 * sum(energy(member) for member in members)

    loss = batch_loss(ensemble, batch, method)
    assert_close(loss.total, M / B * (data + alpha * B / 30 * kl) + penalty)
    assert_close(loss.terms["data"], (data / B).detach())
    assert_close(loss.terms["kl"], kl.detach())
    assert_close(loss.terms["penalty"], torch.as_tensor(penalty).detach().double())


@pytest.mark.parametrize("M, C", [(2, 1), (5, 3)])
def test_data_term_of_degp_is_de_plus_a_constant(M, C):
    ensemble, batch, variance = small_ensemble(M, C=C), small_batch(C=C), 0.3
    lam = ensemble_posterior(ensemble(batch.inputs)).diagonal[0, 0]
    functional = batch_loss(ensemble, batch, degp(Gaussian(variance), NNGP(1), alpha=0.0)).total
    assert_close(functional, batch_loss(ensemble, batch, de(Gaussian(variance))).total + M * C * lam / (2 * variance))


def test_members_see_the_gradient_of_de_where_alpha_is_zero():
    ensemble, batch = small_ensemble(), small_batch()
    ours, theirs = (gradients(make, ensemble, batch) for make in (degp(Gaussian(), NNGP(1), alpha=0.0), de(Gaussian())))
    assert_close(ours, theirs)


@pytest.mark.parametrize("M, N, C, scale", [(2, 3, 2, 1.0), (4, 2, 3, 0.2), (4, 2, 3, 3.0)])
def test_members_and_temperature_scaled_together_change_the_loss_by_its_law(M, N, C, scale):
    g, labels, tau = scale * normal(M, N, C), torch.arange(N) % C, 0.5
    prior = KroneckerGaussian.from_gram(NNGP(1)(normal(N, 2), normal(N, 2)), C, jitter=0.05)
    likelihood = Categorical(tau, num_draws=200_000)

    def slope(of):
        s = torch.ones((), dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(of(s), s)[0]

    def data(s):  # f / sτ, where λ is a constant
        q = ensemble_posterior(s * g)
        smaller = LowRankGaussian(q.mean / s, q.deviations / s, q.diagonal / s**2)
        return -likelihood.expected_log_prob(smaller, labels, generator=seeded()).sum()

    q = ensemble_posterior(g)
    m, A, lam = q.mean.flatten(), q.deviations.flatten(1), q.diagonal[0, 0]
    precision, eigenvalues = torch.linalg.inv(prior.covariance()), torch.linalg.eigvalsh(A @ A.mT)
    push = (eigenvalues / (eigenvalues + lam)).sum()
    kl = slope(lambda s: kl_divergence(ensemble_posterior(s * g), prior))
    assert_close(kl, m @ precision @ m + (A @ precision * A).sum() - push)
    assert push <= M - 1
    p = likelihood.probabilities(q.sample(200_000, generator=seeded(1)))
    assert_close(slope(data), -lam / tau**2 * (1 - p.square().sum(-1)).mean(0).sum(), rtol=0.03, atol=1e-4)


@pytest.mark.parametrize("norm, training", [(nn.BatchNorm1d, False), (nn.LayerNorm, True), (nn.LayerNorm, False)])
def test_measurement_points_do_not_change_outputs_on_the_data(norm, training):
    """But for BatchNorm in training, whose statistics are those of all points."""
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: nn.Sequential(nn.Linear(2, 5), norm(5), nn.Linear(5, 2)), 4).double().train(training)
    batch, box = small_batch(), UniformBox(5.0, 9.0, 7)
    before = {name: value.clone() for name, value in ensemble.state_dict().items()}
    states, losses = [], []
    for measurement in (box, no_points):
        ensemble.load_state_dict(before)
        losses.append(gradients(degp(Gaussian(), NNGP(1), alpha=0.0, measurement=measurement), ensemble, batch))
        states.append({name: value.clone() for name, value in ensemble.named_buffers()})
    assert_close(losses[0], losses[1])
    assert_close(states[0], states[1])


def test_measurement_points_reach_the_divergence():
    ensemble, batch = small_ensemble(), small_batch()
    few, more = (
        batch_loss(ensemble, batch, degp(Gaussian(), NNGP(1), measurement=measurement), generator=seeded()).terms["kl"]
        for measurement in (no_points, UniformBox(5.0, 9.0, 7))
    )
    assert more > few + 1


@pytest.mark.parametrize("domain, start", [(MeasurementAlone(), 6), (BatchPart(4), 2)])
def test_the_divergence_on_a_part_of_the_points_is_that_of_the_marginals(domain, start):
    """One q, with one λ for all points: the data term is the same, the divergence that of its marginal there."""
    ensemble, batch = small_ensemble(), small_batch()
    options = {"alpha": 0.7, "measurement": UniformBox(-2.0, 2.0, 5)}
    part = degp(Gaussian(), NNGP(1), domain=domain, **options)
    joint_points = torch.cat([batch.inputs, part.measurement(batch.inputs, generator=seeded())])
    points = joint_points[start:]
    q = ensemble_posterior(ensemble(joint_points)).marginal(slice(start, None))
    gram = NNGP(1).kernel()(points, points)
    jitter = 0.05 * gram.diagonal().mean() * torch.eye(len(points))
    p = KroneckerGaussian(torch.linalg.cholesky(gram + jitter), 2)
    loss = batch_loss(ensemble, batch, part, generator=seeded())
    joint = batch_loss(ensemble, batch, degp(Gaussian(), NNGP(1), **options), generator=seeded())
    assert_close(loss.terms["kl"], kl_divergence(q, p))
    assert_close(loss.terms["data"], joint.terms["data"])
    assert loss.terms["kl"] < joint.terms["kl"]  # the divergence of marginals never exceeds that of the joint
    expected = len(ensemble) * (loss.terms["data"] + 0.7 / batch.population * loss.terms["kl"])
    assert_close(loss.total, expected)


def test_draws_come_from_the_generator():
    ensemble, batch = small_ensemble(C=3), Batch(normal(6, 2), torch.tensor([0, 2, 1, 1, 0, 2]), 6)
    method = degp(Categorical(), NNGP(1), measurement=UniformBox(-1.0, 1.0, 3))
    one, same, other = (batch_loss(ensemble, batch, method, generator=seeded(seed)).total for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)


@pytest.mark.parametrize("measurement", [no_points, UniformBox(-1.0, 1.0, 3)], ids=["none", "three"])
def test_the_loss_depends_on_what_was_prepared_and_no_gradient_flows_into_it(measurement):
    ensemble, batch = small_ensemble(C=3), Batch(normal(6, 2), torch.tensor([0, 2, 1, 1, 0, 2]), 30)
    prior = MonteCarloNNGP(nn.Sequential(nn.Linear(2, 8), nn.ReLU()).double())
    method = degp(Categorical(), prior, alpha=0.7, beta=0.3, measurement=measurement)
    prepared = method.prepare(batch.inputs, generator=seeded())
    assert not any(tensor.requires_grad for tensor in prepared.tensors())
    outputs = ensemble.joint_outputs(batch.inputs, prepared.measurement)
    other = Prepared(prepared.measurement, *method.prepare(batch.inputs + 1, generator=seeded()).tensors()[1:])
    kl, other_kl = (method.loss(outputs, ensemble, batch, p, generator=seeded()).terms["kl"] for p in (prepared, other))
    assert not torch.equal(kl, other_kl)


def test_alpha_is_in_units_of_bayes_weight():
    """A batch that is drawn twice as often from a population half as large has twice the divergence."""
    ensemble, method = small_ensemble(), degp(Gaussian(), NNGP(1), alpha=0.8)
    batch = small_batch(population=30)
    losses = [batch_loss(ensemble, Batch(batch.inputs, batch.targets, N), method) for N in (6, 30, 60)]
    data = losses[0].total - 0.8 * len(ensemble) / 6 * losses[0].terms["kl"]
    for loss, population in zip(losses, (6, 30, 60), strict=True):
        assert_close(loss.total, data + 0.8 * len(ensemble) / population * loss.terms["kl"])


# What the outputs say


def test_training_and_prediction_share_one_epsilon():
    outputs = normal(4, 5, 2)
    q = degp(Gaussian(), NNGP(1), epsilon=0.3).posterior(outputs)
    central = (outputs - outputs.mean(0)).square().mean(0)
    assert_close(q.diagonal, 0.3 * central.mean(1, keepdim=True).expand_as(central))
    assert_close(q.variance(), central + q.diagonal)


@pytest.mark.parametrize("make", [de, rde], ids=["de", "rde"])
def test_members_that_train_alone_predict_as_a_mixture(make):
    method, outputs = make(Categorical(0.7)), normal(3, 4, 2)
    by_hand = torch.softmax(outputs / 0.7, -1).mean(0)
    assert_close(method.predictive(outputs).probabilities, by_hand)


def test_a_single_member_predicts_by_itself():
    method, outputs = degp(Categorical(0.7), NNGP(1)), normal(1, 4, 3)
    assert_close(method.predictive(outputs).probabilities, torch.softmax(outputs[0] / 0.7, -1))


@pytest.mark.parametrize("make", [de, lambda likelihood: degp(likelihood, NNGP(1))], ids=["de", "degp"])
def test_observations_change_the_function_and_not_the_noise(make):
    method, outputs, targets = make(HeteroscedasticGaussian()), normal(6, 5, 2), normal(5, 1, seed=1)
    before = method.posterior(outputs)
    first = method.likelihood.predictive(before)
    coefficients = first.posterior.coefficients(targets, first.aleatoric)
    after = method.predictive(outputs, coefficients=coefficients)
    assert_close(after.aleatoric, first.aleatoric)
    assert bool((after.epistemic < first.epistemic).all())
    assert not torch.equal(after.mean, first.mean)


def test_draws_are_those_of_the_method():
    outputs = normal(5, 3, 2)
    assert any(torch.equal(de(Gaussian()).draw(outputs, generator=seeded()), member) for member in outputs)
    draws = torch.stack([degp(Gaussian(), NNGP(1)).draw(outputs, generator=seeded(k)) for k in range(4000)])
    q = degp(Gaussian(), NNGP(1)).posterior(outputs)
    assert_close(torch.cov(draws.flatten(1).mT), q.covariance(), rtol=0, atol=0.15)


def test_another_likelihood_leaves_the_method_as_it_was():
    method = rde(Categorical(0.5))
    other = methods.with_likelihood(method, Categorical(2.0))
    assert_close(method.likelihood.temperature.item(), 0.5)
    assert_close(other.likelihood.temperature.item(), 2.0)
    assert other.penalty is method.penalty and set(other.state_dict()) == set(method.state_dict())


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_builds_its_method(kind):
    ensemble, likelihood = small_ensemble(), Gaussian(0.3)
    built = kind.build(
        likelihood,
        ensemble,
        WeightPrior(),
        functional=lambda: degp(likelihood, NNGP(1)),
        weight=0.5,
        generator=seeded(),
    )
    by_hand = {
        Kind.DE: lambda: de(likelihood),
        Kind.RDE: lambda: rde(likelihood, weight=0.5),
        Kind.RMS: lambda: rms(likelihood, ensemble, weight=0.5, generator=seeded()),
        Kind.DEGP: lambda: degp(likelihood, NNGP(1)),
    }[kind]()
    one, other = (batch_loss(ensemble, small_batch(), method, generator=seeded()) for method in (built, by_hand))
    assert torch.equal(one.total, other.total)


# In use


@pytest.mark.parametrize("make", [de, rde, lambda likelihood: degp(likelihood, NNGP(1))], ids=["de", "rde", "degp"])
def test_a_loop_of_ones_own_trains(make):
    torch.manual_seed(0)
    ensemble, inputs = Ensemble(lambda: mlp(1, [20], 1), 3), torch.linspace(-1, 1, 20)[:, None]
    batch, method = Batch(inputs, torch.sin(3 * inputs), len(inputs)), make(Gaussian(0.2, learned=True))
    optimizer = torch.optim.Adam([*ensemble.parameters(), *method.parameters()], lr=0.02)
    losses = []
    for _ in range(100):
        loss = batch_loss(ensemble, batch, method).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1
    assert method.likelihood.variance < 0.2


@pytest.mark.parametrize("D, N", [(1, 8), (2, 10)])
def test_linear_ensemble_recovers_the_exact_posterior(D, N):
    prior, variance, steps = NNGP(0, 2.0, 0.5), 0.09, 500
    batch = Batch(normal(N, D), normal(N, D).mean(1, keepdim=True) + 0.3 * normal(N, 1, seed=1), N)
    start = WeightPrior(2.0, 0.5)
    generator = seeded()
    ensemble = Ensemble(lambda: start.initialise(nn.Linear(D, 1).double(), generator=generator), 8)
    method = degp(Gaussian(variance), prior, alpha=1.0, epsilon=1e-4)
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        batch_loss(ensemble, batch, method).total.backward()
        optimizer.step()
        scheduler.step()

    points = 2 * normal(100, D, seed=4)
    exact, q = (
        ExactGP.fit(prior, batch.inputs, batch.targets, noise_variance=variance),
        ensemble_posterior(ensemble(points), diagonal=0.0),
    )
    std = exact.variance(points).sqrt()
    assert (q.variance()[:, 0].sqrt() / std).log().abs().mean() < 0.02
    assert ((q.mean - exact.mean(points))[:, 0] / std).abs().mean() < 0.02


def test_one_member_predicts_and_draws_itself():
    ensemble, method = small_ensemble(1), degp(MEAN, NNGP(1))
    outputs = ensemble(small_batch().inputs)
    assert torch.equal(method.draw(outputs), outputs[0])
    assert torch.equal(method.posterior(outputs).variance(), torch.zeros_like(outputs[0]))
    assert torch.equal(method.predictive(outputs).mean, outputs[0])


# Arguments that cannot be

MEAN = Gaussian()
REFUSED = {
    "the divergence and must not be negative, but it is -0.1": lambda: degp(MEAN, NNGP(1), alpha=-0.1),
    "the divergence and must not be negative, but it is nan": lambda: degp(MEAN, NNGP(1), alpha=math.nan),
    "the weight of a penalty must not be negative, but it is -1.0": lambda: rde(MEAN, weight=-1.0),
    "the weight of a penalty must not be negative, but it is -2.0": lambda: degp(MEAN, NNGP(1), beta=-2.0),
    "the weight of a penalty must not be negative, but it is -3.0": lambda: rms(MEAN, small_ensemble(), weight=-3.0),
    "epsilon is a share of the average variance and must be positive, but it is 0.0": lambda: degp(
        MEAN, NNGP(1), epsilon=0.0
    ),
    "at least two members, but there is 1": lambda: batch_loss(small_ensemble(1), small_batch(), degp(MEAN, NNGP(1))),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_minimised_is_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message]()


@pytest.mark.parametrize("targets", [normal(6), normal(6, 2), normal(6, 1, 1), torch.ones(6, 1).long()])
@pytest.mark.parametrize("method", [de(MEAN), rde(MEAN), degp(MEAN, NNGP(1))], ids=["de", "rde", "degp"])
def test_targets_of_another_form_are_refused_and_not_broadcast(method, targets, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for users, whose shapes nobody else checks
    message = f"rows (N, 1), one column per output of the network, but they are {targets.dtype} of shape"
    with pytest.raises(ValueError, match=re.escape(f"{message} {tuple(targets.shape)}")):
        batch_loss(small_ensemble(C=1), Batch(normal(6, 2), targets, 6), method)


@pytest.mark.parametrize("make", [de, lambda likelihood: degp(likelihood, NNGP(1))], ids=["de", "degp"])
def test_a_likelihood_by_its_name_is_refused(make, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(TypeError, match=r"such as degp.Gaussian\(\) or degp.Categorical\(\), but it is 'gaussian'"):
        make("gaussian")


@pytest.mark.parametrize("method", [de(MEAN), rde(MEAN), degp(MEAN, NNGP(1))], ids=["de", "rde", "degp"])
def test_a_batch_of_a_loader_must_state_the_population(method):
    """Its own size would make the prior count N / B times too much, and nobody would notice."""
    ensemble, x, y = small_ensemble(C=1), normal(6, 2), normal(6, 1)
    for forgotten in (Batch(x, y), Batch(x, y).to(dtype=torch.float64), replace(Batch(x, y), inputs=2 * x)):
        with pytest.raises(
            ValueError, match=r"must state the size N .*, but this one of 6 points does not; pass Batch"
        ):
            batch_loss(ensemble, forgotten, method)
    stated = batch_loss(ensemble, Batch(x, y, 6), method).total
    assert_close(batch_loss(ensemble, Batch(x, y)[:], method).total, stated)  # rows of a whole set


def test_classes_and_names_are_no_methods_and_no_likelihoods():
    with pytest.raises(TypeError, match=r"but it is <class 'degp.likelihoods.Gaussian'>"):
        de(Gaussian)
    for wrong in ("degp", DEGP):
        with pytest.raises(TypeError, match=r"a method must be a value such as degp.methods.de\(degp.Gaussian\(\)\)"):
            require_method(wrong)
    require_method(de(MEAN))
    assert issubclass(DEGP, Method) and not issubclass(Gaussian, Method)  # Python 3.12 looks at the class
