"""Objectives trained side by side are the objectives trained alone, and the choice among them is the one described."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from degp import Batch, Categorical, Ensemble, Gaussian, UniformBox, fit, objectives
from degp.nets import mlp
from degp.priors import NNGP, ExactGP
from degp.priors.evidence import most_likely_scales
from degp.selection import (
    Budget,
    Contest,
    calibrate,
    calibrate_with_care,
    contenders,
    epochs_done,
    first_within_one_error,
    largest_within_one_error,
    predictive_of,
    select,
)
from degp.selection.calibration import DOUBT, calibrated_nll
from degp.side_by_side import SideBySide
from degp.training import Checkpoints

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


def test_a_simpler_variant_stands_until_the_data_speak_against_it():
    noise = torch.randn(3, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = 0.1 * (noise - noise.mean(1, keepdim=True))
    for means, taken in (((0.001, 0.0, 0.001), 0), ((0.5, 0.001, 0.0), 1), ((0.5, 0.5, 0.0), 2), ((0.0, 0.0, 0.0), 0)):
        assert first_within_one_error(noise + torch.tensor(means, dtype=torch.float64)[:, None]) == taken


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


@given(log_factor=st.floats(-9, 9), epistemic=st.floats(0.01, 2.0), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_an_epoch_is_judged_as_it_would_be_delivered(log_factor, epistemic, seed):
    """The NLL does not depend on how far off the noise is, and is that after calibration."""
    generator = torch.Generator().manual_seed(seed)
    outputs = epistemic * torch.randn(4, 40, 1, generator=generator, dtype=torch.float64)
    truth = torch.randn(40, 1, generator=generator, dtype=torch.float64) * 0.5
    variant = objectives.degp(Gaussian(0.3 * math.exp(log_factor)), NNGP(1))
    judged = calibrated_nll(predictive_of(variant, outputs, variant.likelihood), truth).mean()
    calibrate(variant.likelihood, variant, outputs, truth)
    delivered = -predictive_of(variant, outputs, variant.likelihood).log_prob(truth).mean()
    assert delivered - 1e-6 <= judged <= delivered + 0.02


@given(rows=st.integers(2, 60), log_noise=st.floats(-3, 3), seed=st.integers(0, 999))
def test_noise_is_lowered_only_as_far_as_the_data_insist_and_raised_at_once(rows, log_noise, seed):
    random = torch.Generator().manual_seed(seed)
    outputs = 0.3 * torch.randn(3, rows, 1, generator=random, dtype=torch.float64)
    targets = torch.randn(rows, 1, generator=random, dtype=torch.float64)
    variant = objectives.de(Gaussian(math.exp(log_noise)))

    def outcome(calibration) -> tuple[float, float]:
        likelihood = copy.deepcopy(variant.likelihood)
        factor = calibration(likelihood, variant, outputs, targets)
        return factor, float(-predictive_of(variant, outputs, likelihood).log_prob(targets).mean())

    (best, least), (careful, nll) = (outcome(calibration) for calibration in (calibrate, calibrate_with_care))
    if best >= 1:
        assert careful == best
    else:
        assert best <= careful <= 1
        assert rows * (nll - least) <= DOUBT**2 / 2 + 1e-6
        assert careful == 1 or rows * (nll - least) == pytest.approx(DOUBT**2 / 2, rel=1e-3)


def test_the_evidence_is_that_of_the_prior_it_chooses(data):
    scales = most_likely_scales(data.inputs, data.targets, 2)
    noise = scales.noise_variance
    exact = ExactGP.fit(scales.nngp(), data.inputs, data.targets, noise_variance=noise)
    constant = 0.5 * data.targets.numel() * math.log(2 * math.pi)
    assert exact.log_marginal_likelihood().item() + constant == pytest.approx(scales.log_evidence, abs=1e-6)


def test_contenders_are_the_best_of_each_alpha_that_is_not_clearly_behind():
    noise = torch.randn(5, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    means = torch.tensor([[0.0], [0.01], [0.005], [0.5], [0.6]], dtype=torch.float64)
    nll = 0.1 * (noise - noise.mean(1, keepdim=True)) + means
    assert contenders(nll, [0.1, 0.1, 0.3, 1.0, 1.0]) == [0, 2]


def test_variants_that_are_dropped_leave_the_others_as_if_they_had_never_been_there(networks, data):
    data, prior = data.to(dtype=torch.float64), NNGP(1)
    budget = Budget(epochs=12, batch_size=16, patience=100, heat=5)

    def run(alphas, budget):
        chosen = [objectives.degp(Gaussian(0.1, learned=True), prior, alpha=alpha) for alpha in alphas]
        ensemble = Ensemble([copy.deepcopy(network) for _ in chosen for network in networks])
        contest = Contest(chosen, M, ensemble, data)
        generator = torch.Generator().manual_seed(3)
        return select(ensemble, contest, data, alphas=alphas, budget=budget, generator=generator, progress=False)

    both = run([0.01, 300.0], budget)
    alone = run([0.01], budget)
    assert both.index == 0
    assert [record["epoch"] for record in both.history.records] == list(range(1, 13))
    assert_close(both.ensemble(data.inputs), alone.ensemble(data.inputs), rtol=1e-8, atol=1e-8)
    assert both.validation_nll[0] == pytest.approx(alone.validation_nll[0])


@pytest.mark.parametrize("epoch", [3, 8], ids=["in the heat", "after it"])
def test_a_selection_that_is_broken_off_goes_on_to_the_same_end(networks, data, tmp_path, monkeypatch, epoch):
    data, prior, judge, calls = data.to(dtype=torch.float64), NNGP(1), Contest.judge, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == epoch:
            raise KeyboardInterrupt
        return judge(*arguments)

    def run(checkpoints):
        alphas = (0.01, 0.02, 300.0)
        chosen = [objectives.degp(Gaussian(0.1, learned=True), prior, alpha=alpha) for alpha in alphas]
        ensemble = Ensemble([copy.deepcopy(network) for _ in chosen for network in networks])
        return select(
            ensemble,
            Contest(chosen, M, ensemble, data),
            data,
            alphas=alphas,
            budget=Budget(epochs=12, batch_size=16, patience=100, heat=5),
            checkpoints=checkpoints,
            generator=torch.Generator().manual_seed(3),
            progress=False,
        )

    whole = run(None)
    checkpoints = Checkpoints(tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Contest, "judge", interrupted)
        run(checkpoints)
    assert epochs_done(checkpoints) == epoch - 1
    again = run(checkpoints)
    assert again.validation_nll == whole.validation_nll
    assert torch.equal(again.ensemble(data.inputs), whole.ensemble(data.inputs))


def test_a_temperature_never_claims_more_than_the_validation_rows_can_show():
    """All 40 rows right: the best temperature leaves each row a chance of being wrong of about one in 40, not none."""
    labels = torch.arange(40) % 3
    outputs = 5.0 * torch.nn.functional.one_hot(labels, 3).float().expand(M, -1, -1)
    likelihood, variant = Categorical(1.0), objectives.de(Categorical(1.0))
    calibrate(likelihood, variant, outputs, labels)
    wrong = 1 - likelihood.mixture(outputs).probabilities.max(-1).values.mean()
    assert 0.5 / 41 < float(wrong) < 1 / 41
