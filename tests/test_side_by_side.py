"""Objectives trained side by side are the objectives trained alone, and the choice among them is the one described."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from degp import Batch, Ensemble, Gaussian, UniformBox, fit, objectives
from degp.nets import mlp
from degp.priors import NNGP, ExactGP
from degp.priors.evidence import most_likely_scales
from degp.selection import Contest, calibrate, largest_within_one_error
from degp.side_by_side import SideBySide

M, ALPHAS = 4, (0.1, 1.0)


@pytest.fixture
def data(generator) -> Batch:
    x = torch.randn(30, 3, generator=generator)
    return Batch(x, torch.sin(x[:, :1]) + 0.1 * torch.randn(30, 1, generator=generator))


@pytest.fixture
def networks() -> list[torch.nn.Module]:
    torch.manual_seed(0)
    return [mlp(3, (8, 8), 1).double() for _ in range(M)]


def variants(networks, data) -> list:
    prior, points = NNGP(2), UniformBox.around(data.inputs, 5)
    anchors = torch.Generator().manual_seed(5)

    def likelihood() -> Gaussian:
        return Gaussian(0.1, learned=True)

    return [
        objectives.de(likelihood()),
        objectives.rde(likelihood()),
        objectives.rms(likelihood(), Ensemble(networks), generator=anchors),
        *(objectives.degp(likelihood(), prior, alpha=alpha, measurement=points) for alpha in ALPHAS),
    ]


def train(ensemble, objective, data) -> None:
    trained = [*ensemble.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    fit(ensemble, data, objective, epochs=5, optimizer=optimizer, generator=torch.Generator().manual_seed(1))


def test_each_variant_trains_as_it_would_alone(networks, data):
    data = data.to(dtype=torch.float64)
    race = SideBySide(variants(networks, data), M)
    together = Ensemble([copy.deepcopy(network) for _ in race.variants for network in networks])
    train(together, race, data)
    for v, alone in enumerate(variants(networks, data)):
        ensemble = Ensemble(networks)
        train(ensemble, alone, data)
        assert_close(together(data.inputs)[race.rows(v)], ensemble(data.inputs), rtol=1e-8, atol=1e-10)
        assert_close(race.variants[v].likelihood.variance, alone.likelihood.variance, rtol=1e-8, atol=0)


def test_variants_must_share_what_is_evaluated_once(data):
    likelihood = Gaussian(0.1)
    with pytest.raises(ValueError, match="must share one prior, one measurement sampler and one epsilon"):
        SideBySide([objectives.degp(likelihood, NNGP(1)), objectives.degp(likelihood, NNGP(2))], M)


def test_the_largest_alpha_that_the_data_do_not_speak_against():
    noise = torch.randn(4, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nll = 0.1 * (noise - noise.mean(1, keepdim=True)) + torch.tensor(
        [[0.5], [0.0], [0.001], [0.5]], dtype=torch.float64
    )
    assert largest_within_one_error(nll, [0.01, 0.1, 0.3, 1.0]) == 2


def test_among_equal_alphas_the_better_variant_is_taken():
    nll = torch.tensor([[0.0, 0.2], [0.1, 0.0]], dtype=torch.float64)
    assert largest_within_one_error(nll, [1.0, 1.0]) == 1


def test_one_validation_point_is_enough_to_choose():
    assert largest_within_one_error(torch.tensor([[1.0], [0.5]], dtype=torch.float64), [0.1, 1.0]) == 1


def test_a_contest_keeps_each_variants_best_weights(networks, data):
    networks = [network.float() for network in networks]
    chosen = variants(networks, data)[3:]
    ensemble = Ensemble([copy.deepcopy(network) for _ in chosen for network in networks])
    contest = Contest(chosen, M, ensemble, data)
    contest.judge(ensemble)
    best = ensemble(data.inputs).clone()
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.add_(5.0)  # far worse
    contest.judge(ensemble)
    assert int(contest.stale) == 1
    assert_close(contest.winner(1, ensemble)(data.inputs), best[M:])


def test_calibration_finds_the_noise_variance_that_the_data_have(networks, data):
    networks = [network.float() for network in networks]
    outputs = Ensemble(networks)(data.inputs).detach()
    variant = objectives.de(Gaussian(1.0))
    truth = outputs.mean(0) + math.sqrt(0.3) * torch.randn(30, 1, generator=torch.Generator().manual_seed(2))
    likelihood = Gaussian(1.0)
    calibrate(likelihood, variant, outputs, truth)
    total = likelihood.variance.item() + outputs.var(0, correction=0).mean().item()
    assert total == pytest.approx((truth - outputs.mean(0)).square().mean().item(), rel=0.15)


def test_the_evidence_is_that_of_the_prior_it_chooses(data):
    scales = most_likely_scales(data.inputs, data.targets, 2)
    noise = scales.noise_variance
    exact = ExactGP.fit(scales.nngp(), data.inputs, data.targets, noise_variance=noise)
    constant = 0.5 * data.targets.numel() * math.log(2 * math.pi)
    assert exact.log_marginal_likelihood().item() + constant == pytest.approx(scales.log_evidence, abs=1e-6)
