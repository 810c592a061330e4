"""The ensemble as a BoTorch model: the Gaussian of `degp.predict`, conditioned exactly, for all acquisitions."""

import copy

import pytest
import torch
from botorch.acquisition import (
    ExpectedImprovement,
    LogExpectedImprovement,
    PosteriorMean,
    PosteriorStandardDeviation,
    UpperConfidenceBound,
    get_acquisition_function,
    qLogExpectedImprovement,
)
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.acquisition.analytic import LogProbabilityOfImprovement
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
from botorch.acquisition.objective import IdentityMCObjective, LinearMCObjective, ScalarizedPosteriorTransform
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.acquisition.utils import get_optimal_samples
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelList, SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise.posterior_samplers import draw_matheron_paths, get_matheron_path_model
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch.testing import assert_close

import degp
from degp import Ensemble, Gaussian, HeteroscedasticGaussian, methods, nets
from degp.decisions.botorch import DEGPModel, FitConfig
from degp.decisions.botorch.stationary import FourierFeatures, SquaredExponential, draw_readouts, map_prior
from degp.priors import NNGP, ExactGP
from degp.typing import Batch

D, M, NOISE, EPSILON = 3, 5, 0.04, 0.05
CUBE = torch.stack([torch.zeros(D), torch.ones(D)]).double()
SMALL = FitConfig(members=16, units=64, measurement_points=8, steps=3)


def members(num_outputs=1, count=M):
    torch.manual_seed(0)
    smooth = torch.nn.Tanh  # gradcheck needs no corners
    return Ensemble(lambda: nets.mlp(D, [8], num_outputs, activation=smooth), count).double()


def method_with(likelihood):
    return methods.degp(likelihood, NNGP(1), epsilon=EPSILON)


def untrained(C=1, **options):
    return DEGPModel(members(C), method_with(Gaussian(NOISE)), num_outputs=C, **options)


def points(*shape, seed=0):
    return torch.rand(*shape, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dense(model, X, noise=0.0):
    """Mean and covariance of all rows of X (N, D), their outputs in the order of the rows."""
    q = degp.predict(model.ensemble, X, model.method).posterior
    covariance = q.covariance()
    return q.mean.flatten(), covariance + noise * torch.eye(len(covariance), dtype=covariance.dtype)


def dense_conditional(model, X, Y, Z, noise):
    """Mean and covariance at Z given noisy observations at X, by Schur's complement."""
    mean, covariance = dense(model, torch.cat([X, Z]))
    k = Y.numel()
    gain = torch.linalg.solve(covariance[:k, :k] + noise * torch.eye(k, dtype=torch.float64), covariance[:k, k:]).T
    return mean[k:] + gain @ (Y.flatten() - mean[:k]), covariance[k:, k:] - gain @ covariance[:k, k:]


def moments(posterior):
    distribution = posterior.distribution
    return distribution.mean.flatten(), distribution.covariance_matrix


@pytest.fixture(scope="module")
def fitted():
    """A model of a known function, and its data."""
    X = points(25)
    Y = torch.sin(6 * X[:, :1]) + X[:, 1:2] - X[:, 2:].square()
    model = DEGPModel.fit(X, Y, bounds=CUBE, generator=torch.Generator().manual_seed(0))
    return model, X, Y


# The posterior.


@pytest.mark.parametrize("C", [1, 2])
def test_posterior_is_the_prediction(C):
    model, X = untrained(C), points(4)
    posterior = model.posterior(X)
    assert isinstance(model, Model) and isinstance(posterior, GPyTorchPosterior)
    for got, expected in zip(moments(posterior), dense(model, X), strict=True):
        assert_close(got, expected)
    assert_close(moments(model.posterior(X, observation_noise=True))[1], dense(model, X, NOISE)[1])


@pytest.mark.parametrize("C", [1, 2])
def test_batch_entries_are_independent_sets_of_points(C):
    model, X = untrained(C), points(2, 3, 4)
    posterior = model.posterior(X)
    assert posterior.mean.shape == (2, 3, 4, C)
    for i in range(2):
        for j in range(3):
            assert_close(posterior.mean[i, j], model.posterior(X[i, j]).mean)
            assert_close(posterior.distribution.covariance_matrix[i, j], moments(model.posterior(X[i, j]))[1])


def test_a_prediction_is_independent_of_the_rest_of_the_batch():
    model, X = untrained(), points(6)
    alone = model.posterior(X[:, None])
    together = model.posterior(X)
    assert_close(alone.mean.flatten(), together.mean.flatten())
    assert_close(alone.variance.flatten(), together.variance.flatten())


def test_gradients_in_x_are_exact():
    model = untrained(2)
    X = points(2, 2).requires_grad_()

    def moments_of(X):
        posterior = model.condition_on_observations(points(1), torch.ones(1, 2).double()).posterior(X)
        return posterior.mean, posterior.distribution.covariance_matrix

    assert torch.autograd.gradcheck(moments_of, X)


def test_conditioning_is_differentiable_in_what_was_observed():
    model, Z = untrained(), points(2, seed=1)
    X, Y = points(2).requires_grad_(), torch.ones(2, 1).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda X, Y: model.condition_on_observations(X, Y).posterior(Z).mean, (X, Y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("C", [1, 2])
@pytest.mark.parametrize("transformed", [False, True])
@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
def test_shapes_and_types_follow_botorch(dtype, C, transformed, batch):
    """The loop of BoTorch's own model tests."""
    model = (transformed_model(C) if transformed else untrained(C)).to(dtype)
    X = points(*batch, 3).to(dtype)
    for noise in (False, True, torch.full((1, C), 0.1, dtype=dtype)):
        posterior = model.posterior(X, observation_noise=noise)
        assert posterior.mean.shape == posterior.variance.shape == (*batch, 3, C)
        assert posterior.rsample(torch.Size([4])).shape == (4, *batch, 3, C)
        assert posterior.dtype == dtype
    fantasies = model.fantasize(X, SobolQMCNormalSampler(torch.Size([4])))
    assert fantasies.batch_shape == (4, *batch)
    for Z in (points(2), points(*batch, 2), points(4, *batch, 2)):
        assert fantasies.posterior(Z.to(dtype)).mean.shape == (4, *batch, 2, C)


def transformed_model(C):
    outcomes = Standardize(C)
    outcomes(5 + 3 * torch.randn(10, C, dtype=torch.float64))
    return untrained(C, input_transform=Normalize(D, bounds=2 * CUBE), outcome_transform=outcomes.eval())


def test_transforms_are_applied_and_undone():
    model, plain, X = transformed_model(2), untrained(2), points(4)
    inside = plain.posterior(X / 2)
    outcomes = model.outcome_transform
    posterior = model.posterior(X)
    assert isinstance(posterior, GPyTorchPosterior)
    assert_close(posterior.mean, outcomes.untransform(inside.mean)[0])
    assert_close(posterior.variance, outcomes.untransform(inside.mean, inside.variance)[1])
    noisy = model.posterior(X, observation_noise=True)
    assert_close(
        noisy.variance, outcomes.untransform_posterior(plain.posterior(X / 2, observation_noise=True)).variance
    )


def test_outcome_transforms_may_be_nonlinear():
    model, X = untrained(outcome_transform=Log()), points(3)
    posterior = model.posterior(X)
    assert isinstance(posterior, TransformedPosterior)
    assert bool((posterior.rsample(torch.Size([8])) > 0).all())
    draws = model.draw(torch.Size([4]))
    assert_close(draws(X).log(), untrained().values_at(X, draws.coefficients))


def test_posterior_transforms_are_applied_last():
    model, X = untrained(2), points(3)
    weights = torch.tensor([1.0, -2.0]).double()
    scalar = model.posterior(X, posterior_transform=ScalarizedPosteriorTransform(weights))
    assert_close(scalar.mean, model.posterior(X).mean @ weights[:, None])


def test_noise_may_depend_on_the_input():
    model = DEGPModel(members(2), method_with(HeteroscedasticGaussian(0.5)), num_outputs=1)
    X = points(4)
    predictive = degp.predict(model.ensemble, X, model.method)
    assert_close(model.posterior(X, observation_noise=True).variance, predictive.total)


# Conditioning.


@pytest.mark.parametrize("C", [1, 2])
@pytest.mark.parametrize("noise", [None, 1e-4])
def test_conditioning_equals_dense_conditioning(C, noise):
    model, X, Z = untrained(C), points(7), points(4, seed=1)
    Y = torch.randn(7, C, dtype=torch.float64)
    given = None if noise is None else torch.full_like(Y, noise)
    after = model.condition_on_observations(X, Y, noise=given).posterior(Z)
    expected = dense_conditional(model, X, Y, Z, NOISE if noise is None else noise)
    for got, value in zip(moments(after), expected, strict=True):
        assert_close(got, value, rtol=0, atol=1e-8)


def test_conditioning_twice_is_conditioning_once():
    model, X, Y, Z = untrained(), points(6), torch.randn(6, 1).double(), points(3, seed=1)
    once = model.condition_on_observations(X, Y).posterior(Z)
    twice = model.condition_on_observations(X[:2], Y[:2]).condition_on_observations(X[2:], Y[2:]).posterior(Z)
    for got, expected in zip(moments(twice), moments(once), strict=True):
        assert_close(got, expected)


def test_each_batch_entry_is_conditioned_on_its_own_observations():
    model, Z = untrained(2), points(3, seed=1)
    X, Y = points(4, 5), torch.randn(2, 4, 5, 2).double()
    batched = model.condition_on_observations(X, Y)
    assert batched.batch_shape == (2, 4)
    posterior = batched.posterior(Z)
    for i in range(2):
        for j in range(4):
            alone = model.condition_on_observations(X[j], Y[i, j]).posterior(Z)
            assert_close(posterior.mean[i, j], alone.mean)
            assert_close(posterior.distribution.covariance_matrix[i, j], moments(alone)[1])


def test_conditioning_agrees_with_the_coefficients_of_the_gaussian():
    model, X, Y, Z = untrained(), points(4), torch.randn(4, 1).double(), points(3, seed=1)
    seen = degp.predict(model.ensemble, X, model.method).posterior.coefficients(Y, NOISE)
    expected = degp.predict(model.ensemble, Z, model.method, coefficients=seen)
    posterior = model.condition_on_observations(X, Y).posterior(Z)
    assert_close(posterior.mean, expected.mean)
    assert_close(posterior.variance, expected.epistemic)


def test_observations_are_in_original_units():
    model, X, Z = transformed_model(1), points(3), points(2, seed=1)
    Y = model.posterior(X).mean.detach() + 1
    inside = untrained().condition_on_observations(X / 2, model.outcome_transform(Y)[0]).posterior(Z / 2)
    assert_close(
        model.condition_on_observations(X, Y).posterior(Z).mean, model.outcome_transform.untransform(inside.mean)[0]
    )


def test_conditioning_leaves_the_model_unchanged():
    model, X, Z = untrained(), points(3), points(2, seed=1)
    before = model.posterior(Z).mean
    after = model.condition_on_observations(X, torch.ones(3, 1).double())
    assert after.ensemble is model.ensemble
    assert_close(model.posterior(Z).mean, before)


def test_no_observations_change_nothing():
    model, Z = untrained(), points(2)
    fantasies = model.fantasize(points(0), SobolQMCNormalSampler(torch.Size([3])))
    assert_close(fantasies.posterior(Z).variance, model.posterior(Z).variance.expand(3, 2, 1))


def test_fantasies_have_the_noise_they_are_given():
    model, X, Z = untrained(), points(2), points(3, seed=1)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    exact = model.fantasize(X, sampler, observation_noise=torch.full((1, 1), 1e-6).double())
    assert isinstance(exact, DEGPModel)
    assert bool((exact.posterior(Z).variance < model.fantasize(X, sampler).posterior(Z).variance).all())


def test_fantasies_follow_the_posterior():
    """The variance of their means is the variance that the observation removes."""
    model, X, Z = untrained(), points(1), points(2, seed=1)
    fantasies = model.fantasize(X, SobolQMCNormalSampler(torch.Size([512]), seed=0)).posterior(Z)
    before = model.posterior(Z)
    assert_close(fantasies.mean.mean(0), before.mean, rtol=0, atol=1e-3)
    assert_close(fantasies.mean.var(0) + fantasies.variance[0], before.variance, rtol=0.02, atol=0)


# Several outputs.


def test_outputs_can_be_selected():
    model, X = transformed_model(3), points(4)
    whole, part = model.posterior(X), model.subset_output([2, 0])
    assert part.num_outputs == 2
    assert_close(part.posterior(X).mean, whole.mean[..., [2, 0]])
    assert_close(part.posterior(X).variance, whole.variance[..., [2, 0]])
    assert_close(part.subset_output([-1]).posterior(X).mean, whole.mean[..., [0]])
    assert_close(model.posterior(X, output_indices=[1]).mean, whole.mean[..., [1]])


def test_observing_one_output_updates_the_others():
    model, X, Z = untrained(2), points(2), points(3, seed=1)
    after = model.subset_output([0]).condition_on_observations(X, torch.ones(2, 1).double())
    mean, covariance = dense(model, torch.cat([X, Z]))
    seen, asked = torch.tensor([0, 2]), torch.tensor([4, 6, 8])
    gain = torch.linalg.solve(covariance[seen][:, seen] + NOISE * torch.eye(2).double(), covariance[seen][:, asked]).T
    assert_close(after.posterior(Z).mean.flatten(), mean[asked] + gain @ (1 - mean[seen]))


def test_models_go_into_lists():
    model = ModelList(untrained(), untrained(2))
    assert model.num_outputs == 3
    assert model.posterior(points(2, 4)).mean.shape == (2, 4, 3)


# Draws.


def test_a_thousand_samples_are_a_thousand_functions():
    samples = untrained().posterior(points(4)).rsample(torch.Size([1000])).squeeze(-1)
    assert len(samples.round(decimals=12).unique(dim=0)) == 1000


def test_draws_are_functions(fitted):
    model, X, _ = fitted
    draws = model.draw(torch.Size([7]), generator=torch.Generator().manual_seed(0))
    values = draws(X)
    assert values.shape == (7, 25, 1)
    assert torch.equal(draws(X), values)
    assert_close(draws(X.flip(0)).flip(1), values)
    assert_close(torch.cat([draws(X[:3]), draws(X[3:])], dim=1), values)
    assert len(values.flatten(1).unique(dim=0)) == 7


def test_draws_follow_the_posterior():
    """With its covariance except for the white part, which no function has."""
    model, X = untrained().condition_on_observations(points(2, seed=2), torch.ones(2, 1).double()), points(3)
    values = model.draw(torch.Size([20_000]), generator=torch.Generator().manual_seed(0))(X).squeeze(-1)
    mean, covariance = moments(model.posterior(X))
    white = EPSILON / (1 + EPSILON) * untrained().posterior(X).variance.flatten()
    assert_close(values.mean(0), mean, rtol=0, atol=0.01)
    assert_close(torch.cov(values.T), covariance - torch.diag(white), rtol=0.05, atol=1e-3)


def test_draws_of_a_batch_of_models_are_a_batch_of_functions():
    model = untrained().condition_on_observations(points(4, 2), torch.ones(4, 2, 1).double())
    draws = model.draw(torch.Size([3]))
    assert draws(points(5)).shape == (3, 4, 5, 1)


@pytest.mark.parametrize("C", [1, 2])
def test_botorch_draws_the_same_functions(C):
    model, X = untrained(C), points(6)
    torch.manual_seed(0)
    paths = get_matheron_path_model(model, sample_shape=torch.Size([3]))
    torch.manual_seed(0)
    assert_close(paths(X), model.draw(torch.Size([3]))(X))
    assert draw_matheron_paths(untrained(), sample_shape=torch.Size([3]))(X).shape == (3, 6)


# Acquisition functions.


@pytest.mark.parametrize("name", ["qEI", "qLogEI", "qPI", "qSR", "qUCB", "qNEI", "qLogNEI"])
def test_monte_carlo_acquisitions_are_differentiable(name, fitted):
    model, X, _ = fitted
    acquisition = get_acquisition_function(name, model, IdentityMCObjective(), X, mc_samples=16, beta=1.0)
    candidates = points(3, 2, seed=1).requires_grad_()
    value = acquisition(candidates)
    assert value.shape == (3,)
    (slope,) = torch.autograd.grad(value.sum(), candidates)
    assert bool(slope.isfinite().all())


@pytest.mark.parametrize(
    "acquisition",
    [
        lambda model: ExpectedImprovement(model, 0.5),
        lambda model: LogExpectedImprovement(model, 0.5),
        lambda model: LogProbabilityOfImprovement(model, 0.5),
        lambda model: UpperConfidenceBound(model, 2.0),
        PosteriorMean,
        PosteriorStandardDeviation,
        lambda model: qMaxValueEntropy(model, points(64, seed=3)),
    ],
)
def test_analytic_acquisitions_are_differentiable(acquisition, fitted):
    candidates = points(3, 1, seed=1).requires_grad_()
    value = acquisition(fitted[0])(candidates)
    (slope,) = torch.autograd.grad(value.sum(), candidates)
    assert value.shape == (3,) and bool(slope.isfinite().all())


@pytest.mark.parametrize(
    "acquisition, q",
    [
        (lambda model: qLogExpectedImprovement(model, 0.5), 3),
        (lambda model: qKnowledgeGradient(model, num_fantasies=4), 2),
        (lambda model: qNegIntegratedPosteriorVariance(model, points(32, seed=3)), 2),
        (PathwiseThompsonSampling, 2),
    ],
)
def test_acquisitions_are_maximised(acquisition, q, fitted):
    torch.manual_seed(0)
    function = acquisition(fitted[0])
    best, value = optimize_acqf(function, CUBE, q=q, num_restarts=2, raw_samples=16, options={"maxiter": 15})
    assert best.shape == (q, D)
    assert bool(((best >= 0) & (best <= 1)).all())


def test_the_knowledge_gradient_is_not_negative(fitted):
    """The expected value of the best point after an observation is at least its value now."""
    model, X, _ = fitted
    knowledge = qKnowledgeGradient(model, num_fantasies=64, sampler=SobolQMCNormalSampler(torch.Size([64]), seed=0))
    now = model.posterior(points(200, seed=4)[:, None]).mean
    best = points(200, seed=4)[now.argmax()][None]
    candidate = torch.cat([points(1, seed=5), best.expand(64, D)])
    assert knowledge(candidate[None]).item() == pytest.approx(now.max().item(), abs=0.02)


def test_an_observation_of_a_point_removes_its_variance_most(fitted):
    model, Z = fitted[0], points(1, seed=6)
    gain = qNegIntegratedPosteriorVariance(model, Z)
    near, far = gain(Z[None] + 0.01), gain(1 - Z[None])
    assert near > far


def test_several_outcomes_are_combined():
    objective = LinearMCObjective(torch.tensor([1.0, -2.0]).double())
    acquisition = qLogExpectedImprovement(untrained(2), best_f=0.0, objective=objective)
    assert bool(acquisition(points(4, 2, seed=1)).isfinite().all())


def test_optima_of_draws_are_found(fitted):
    inputs, outputs = get_optimal_samples(fitted[0], CUBE, num_optima=3, raw_samples=32, num_restarts=2)
    assert inputs.shape == (3, D) and outputs.shape == (3, 1)


# Training.


def test_fit_is_close_to_the_exact_posterior(fitted):
    model, X, Y = fitted
    prior, Z = map_prior(Batch(X, (Y - Y.mean()) / Y.std())), points(100, seed=7)
    exact = ExactGP.fit(prior, X, (Y - Y.mean()) / Y.std() - prior.constant, noise_variance=prior.noise_variance)
    mean, std = Y.mean() + Y.std() * (exact.mean(Z) + prior.constant), Y.std() * exact.variance(Z).sqrt()
    posterior = model.posterior(Z[:, None])
    assert ((posterior.mean.squeeze(-1) - mean).squeeze() / std).square().mean().sqrt() < 0.3
    assert (posterior.variance.flatten().sqrt() / std).log().abs().mean() < 0.1


def test_scales_agree_with_botorchs_own_model(fitted):
    _, X, Y = fitted
    prior = map_prior(Batch(X, (Y - Y.mean()) / Y.std()))
    oracle = SingleTaskGP(X, Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(oracle.likelihood, oracle))
    assert_close(prior.length_scales, oracle.covar_module.lengthscale.flatten().detach(), rtol=0.02, atol=0)
    assert_close(prior.noise_variance, oracle.likelihood.noise.item(), rtol=0.02, atol=0)
    assert_close(prior.constant, oracle.mean_module.constant.detach()[None], rtol=0.02, atol=0.01)


def test_wide_layers_give_draws_of_the_posterior():
    """Functions of the output weights have the exact posterior mean and variance."""
    generator = torch.Generator().manual_seed(0)
    prior = SquaredExponential(torch.full((D,), 0.5).double(), torch.zeros(1).double(), 0.01)
    hidden = FourierFeatures(torch.randn(4096, D, dtype=torch.float64, generator=generator) / prior.length_scales)
    data, Z = Batch(points(6), torch.randn(6, 1, dtype=torch.float64, generator=generator)), points(5, seed=1)
    readouts = draw_readouts(hidden, data, prior.noise_variance, 500, generator=generator)
    values = (hidden(Z) @ readouts).squeeze(-1).detach()
    exact = ExactGP.fit(prior, data.inputs, data.targets, noise_variance=prior.noise_variance)
    assert_close(values.mean(0), exact.mean(Z).flatten(), rtol=0, atol=0.05)
    assert_close(values.var(0), exact.variance(Z), rtol=0.2, atol=0.03)


def test_the_fit_is_invariant_to_units():
    X, Y = points(10), torch.randn(10, 2).double()
    scale, shift = torch.tensor([1.0, 20.0, 300.0]).double(), torch.tensor([5.0, 0.0, -7.0]).double()
    models = [
        DEGPModel.fit(x, y, bounds=bounds, config=SMALL, generator=torch.Generator().manual_seed(0))
        for x, y, bounds in [(X, Y, CUBE), (scale * X + shift, 100 + 9 * Y, scale * CUBE + shift)]
    ]
    Z = points(4, seed=1)
    assert_close(
        models[1].posterior(scale * Z + shift).mean, 100 + 9 * models[0].posterior(Z).mean, rtol=1e-4, atol=1e-3
    )


def test_fit_keeps_the_hidden_layer_of_an_earlier_model():
    X, Y = points(12), torch.randn(12, 1).double()
    first = DEGPModel.fit(X[:10], Y[:10], bounds=CUBE, config=SMALL)
    second = DEGPModel.fit(X, Y, bounds=CUBE, config=SMALL, start=first)
    ratio = second.ensemble.backbone.frequencies / first.ensemble.backbone.frequencies
    assert_close(ratio.median(0).values.expand_as(ratio), ratio, rtol=0.1, atol=0.1)


def test_fit_repeats_under_torchs_own_seed():
    X, Y = points(8), torch.randn(8, 1).double()
    means = []
    for _ in range(2):
        torch.manual_seed(3)
        means.append(DEGPModel.fit(X, Y, config=SMALL).posterior(X).mean)
    assert torch.equal(*means)


def test_constant_features_and_outcomes_are_accepted():
    X, Y = points(8), torch.ones(8, 1).double()
    X[:, 1] = 0.5
    assert bool(DEGPModel.fit(X, Y, config=SMALL).posterior(points(3)).variance.isfinite().all())


def test_models_are_copied_and_saved(fitted):
    model, X, Y = fitted
    changed = model.condition_on_observations(X[:2], Y[:2] + 1)
    twin = copy.deepcopy(model)
    twin.load_state_dict(changed.state_dict())
    assert_close(twin.posterior(X).mean, changed.posterior(X).mean)


# Errors.


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: DEGPModel(members(), method_with(degp.Categorical())),
            "must be Gaussian or HeteroscedasticGaussian, but it is Categ",
        ),
        (lambda: DEGPModel(members(count=1), method_with(Gaussian(0.1))), "at least two members, but there is 1"),
        (
            lambda: DEGPModel(members(), methods.de(Gaussian(0.1))),
            "a method with positive epsilon, but it is 0.0; use methods.degp",
        ),
        (lambda: untrained().posterior(points(3)[0]), r"points in rows, \(…, q, D\), but its shape is \(3,\)"),
        (
            lambda: DEGPModel(members(2), method_with(Gaussian(0.1))).posterior(points(3)),
            "it is 1 and they predict 2; pass num_outputs=2",
        ),
        (
            lambda: untrained().condition_on_observations(points(3), torch.ones(3, 2).double()),
            r"Y must hold 1 outcome\(s\) for each of the 3 points of X, \(…, 3, 1\), but its shape is \(3, 2\)",
        ),
        (lambda: untrained(2).subset_output([2]), r"output indices must be from 0 to 1, but they are \[2\]"),
        (
            lambda: DEGPModel.fit(points(4), torch.ones(3, 1).double()),
            r"shapes are \(4, 3\) and \(3, 1\); a single outcome is \(N, 1\)",
        ),
        (lambda: DEGPModel.fit(points(1), torch.ones(1, 1).double()), "at least 2 observations are needed"),
        (
            lambda: DEGPModel.fit(points(2), torch.tensor([[1.0], [torch.nan]]).double()),
            r"outcomes must be finite, but row 1 is \[nan\]",
        ),
        (
            lambda: DEGPModel.fit(points(3), torch.ones(3, 1).double(), bounds=CUBE.flip(0)),
            "every lower bound must be below its upper bound",
        ),
        (
            lambda: DEGPModel.fit(points(3), torch.ones(3, 1).double(), start=untrained()),
            "start must be a model from DEGPModel.fit",
        ),
        (lambda: FitConfig(members=1), "members must be at least 2, but it is 1"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def smooth(*sizes):
    return nets.mlp(*sizes, activation=torch.nn.Tanh)


LIGHT = {
    "heads": lambda: Ensemble(lambda: smooth(8, [4], 1), M, backbone=smooth(D, [8], 8).requires_grad_(False)),
    "rank one": lambda: degp.rank_one(smooth(D, [8], 1), M),
    "low rank": lambda: degp.lora(smooth(D, [8], 1), M, rank=2),
}


@pytest.mark.parametrize("kind", LIGHT)
def test_light_members_are_a_model_like_others(kind):
    """Predictions, conditioning as of a dense Gaussian process, and gradients for the optimiser of acquisitions."""
    torch.manual_seed(0)
    ensemble, method = LIGHT[kind]().double(), method_with(Gaussian(NOISE))
    model, x = DEGPModel(ensemble, method), torch.rand(4, D, dtype=torch.float64)
    expected = degp.predict(ensemble, x, method)
    assert_close(model.posterior(x).mean, expected.mean)
    assert_close(model.posterior(x).variance, expected.epistemic)
    y = expected.mean + 1.0
    known = model.condition_on_observations(x, y)
    coefficients = expected.posterior.coefficients(y, NOISE)
    assert_close(known.posterior(x).mean, degp.predict(ensemble, x, method, coefficients=coefficients).mean)
    point = torch.rand(1, D, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(LogExpectedImprovement(known, best_f=y.max())(point[None]).sum(), point)
    assert float(gradient.abs().min()) > 0


def test_members_with_units_of_their_own_are_refused():
    with pytest.raises(ValueError, match=r"in the units of its outcomes, but this likelihood has units .*; train with"):
        DEGPModel(members(), method_with(Gaussian(NOISE, units=([1.0], [2.0]))))
