"""Agents learn from the rewards of their own choices, resume bit-for-bit from a file, and refuse invalid values."""

import dataclasses
import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from degp import Batch, Ensemble, Gaussian, PointwiseAverage, batch_loss, ensemble_posterior, fit, methods, priors
from degp.decisions.bandits import (
    AgentConfig,
    AgentError,
    EnsembleAgent,
    EpsilonGreedy,
    LinearAgent,
    PartialGaussian,
    Problem,
    ThompsonSampling,
    UniformAgent,
    load_agent,
)
from degp.decisions.bandits.feedback import observations
from degp.likelihoods import Likelihood
from degp.methods import Kind
from degp.nets import mlp
from experiments.data.bandits import classification
from experiments.protocols.bandits import play

PROBLEM = Problem(num_features=2, num_actions=3)
SMALL = AgentConfig(hidden_layers=(16,), members=3, steps=3, batch_size=32, update_every=20, learning_rate=0.01)
NAN = math.nan
CONFIGS = {kind.value: replace(SMALL, method=kind) for kind in Kind}
CONFIGS["greedy"] = replace(SMALL, method=Kind.DE, rule=EpsilonGreedy(0.05))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def blobs(seed=0):
    """Three classes around three centres: a bandit that a network learns in a few hundred rounds."""
    g = seeded(seed)
    labels = torch.randint(3, (600,), generator=g)
    centres = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    return classification(centres[labels] + 0.5 * torch.randn(600, 2, generator=g), labels)


def agents(generator=seeded):
    return {
        **{name: EnsembleAgent(PROBLEM, config, generator=generator()) for name, config in CONFIGS.items()},
        "linear": LinearAgent(PROBLEM, generator=generator()),
        "uniform": UniformAgent(PROBLEM, generator=generator()),
    }


AGENTS = (*CONFIGS, "linear", "uniform")


# The likelihood of partly observed targets


@pytest.mark.parametrize("M, N, C", [(2, 1, 1), (3, 5, 2), (4, 3, 7)])
def test_only_observed_outputs_count(M, N, C, generator):
    outputs = torch.randn(M, N, C, dtype=torch.float64, generator=generator)
    actions, rewards = (
        torch.randint(C, (N,), generator=generator),
        torch.randn(N, dtype=torch.float64, generator=generator),
    )
    partial, whole, rows = PartialGaussian(0.3), Gaussian(0.3), torch.arange(N)
    targets, chosen = observations(actions, rewards, C), outputs[:, rows, actions][..., None]
    q = ensemble_posterior(outputs)
    own = ensemble_posterior(chosen, diagonal=float(q.diagonal[0, 0]))
    assert_close(partial.log_prob(outputs, targets), whole.log_prob(chosen, rewards[:, None]))
    assert_close(partial.expected_log_prob(q, targets), whole.expected_log_prob(own, rewards[:, None]))


def test_fully_observed_is_the_gaussian_likelihood(generator):
    outputs, targets = torch.randn(3, 4, 2, generator=generator), torch.randn(4, 2, generator=generator)
    partial, whole, q = PartialGaussian(0.3), Gaussian(0.3), ensemble_posterior(outputs)
    assert isinstance(partial, Likelihood)
    assert_close(partial.expected_log_prob(q, targets), whole.expected_log_prob(q, targets))
    for ours, theirs in (
        (partial.predictive(q), whole.predictive(q)),
        (partial.mixture(outputs), whole.mixture(outputs)),
    ):
        assert_close(ours.mean, theirs.mean)
        assert_close(ours.total, theirs.total)
    partial.widen(2.0)
    assert_close(partial.expected_log_prob(q, targets), Gaussian(0.6).expected_log_prob(q, targets))


def test_unobserved_outputs_have_no_gradient(generator):
    outputs = torch.randn(3, 2, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    targets = torch.tensor([[1.0, NAN], [NAN, NAN]], dtype=torch.float64)
    likelihood = PartialGaussian(0.3)
    (gradient,) = torch.autograd.grad(likelihood.expected_log_prob(ensemble_posterior(outputs), targets).sum(), outputs)
    assert gradient[:, 0, 0].all() and not gradient[:, 0, 1].any() and not gradient[:, 1].any()
    assert torch.autograd.gradcheck(lambda g: likelihood.log_prob(g, targets), (outputs,))


def test_an_action_never_taken_keeps_its_prior():
    """The data term covers the chosen action, the divergence both: one is learned, the other keeps its variance."""
    g = seeded()
    x = torch.linspace(-2, 2, 12)[:, None]
    targets = torch.cat([torch.sin(2 * x), torch.full_like(x, NAN)], dim=1)
    weights, prior = priors.WeightPrior(2.0, 1.0), priors.NNGP(1, 2.0, 1.0)
    ensemble = Ensemble(lambda: weights.initialise(mlp(1, [64], 2), generator=g), 20)
    method = methods.degp(PartialGaussian(0.01), prior, epsilon=1e-3)
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=5e-3)
    fit(ensemble, Batch(x, targets), method, epochs=200, optimizer=optimizer, generator=g, progress=False)
    std = ensemble_posterior(ensemble(x).detach(), diagonal=0.0).variance().sqrt()
    prior_std = prior(x, x).diagonal().sqrt().float()
    assert std[:, 0].mean() < 0.2 * prior_std.mean()
    assert 0.7 < (std[:, 1] / prior_std).mean() < 1.3


@pytest.mark.parametrize(
    "targets, message",
    [
        (torch.zeros(4), r"rows \(N, 2\)"),
        (torch.zeros(4, 3), r"rows \(N, 2\)"),
        (torch.zeros(4, 2, dtype=torch.long), "floating-point"),
    ],
)
def test_targets_of_another_form_are_refused(targets, message):
    with pytest.raises(ValueError, match=message):
        PartialGaussian(0.1).check(targets, 2)


def test_infinite_targets_and_no_noise_are_refused():
    with pytest.raises(ValueError, match="must be finite"):
        PartialGaussian(0.1).check_values(torch.tensor([[math.inf, NAN]]), 2)
    with pytest.raises(ValueError, match="variance must be positive"):
        PartialGaussian(0.0)


# Decision rules


@pytest.mark.slow
def test_thompson_sampling_draws_from_the_posterior(generator):
    outputs, method = torch.randn(4, 1, 3, generator=generator), methods.degp(PartialGaussian(0.1), priors.NNGP(1))
    draws = torch.cat([ThompsonSampling()(outputs, method, generator) for _ in range(10_000)])
    q = ensemble_posterior(outputs, diagonal=PointwiseAverage(0.05))
    assert_close(draws.mean(0), q.mean[0], atol=0.03, rtol=0)
    assert_close(draws.T.cov(), q.covariances()[0], atol=0.05, rtol=0)


def test_thompson_sampling_from_a_mixture_takes_members_equally_often(generator):
    outputs, method = torch.arange(4.0)[:, None, None], methods.de(PartialGaussian(0.1))
    draws = torch.cat([ThompsonSampling()(outputs, method, generator) for _ in range(8000)])
    assert_close(draws.flatten().long().bincount() / 8000, torch.full((4,), 0.25), atol=0.02, rtol=0)


def test_epsilon_greedy_explores_with_its_probability(generator):
    outputs, method = torch.tensor([[[2.0, 5.0, 1.0]], [[2.0, 7.0, 1.0]]]), methods.de(PartialGaussian(0.1))
    counts = EpsilonGreedy(0.3)(outputs.expand(2, 9000, 3), method, generator).argmax(1).bincount(minlength=3)
    assert_close(counts / 9000, torch.tensor([0.1, 0.8, 0.1]), atol=0.02, rtol=0)


def test_the_linear_agent_chooses_with_its_posterior_probability():
    """P(action 1) = Φ((μ₁ − μ₀) / √(v₀ + v₁)) with the moments of dense Bayesian linear regression."""
    g, problem, noise, prior = seeded(), Problem(3, 2), 0.5, 2.0
    agent = LinearAgent(problem, weight_variance=prior, noise_variance=noise, generator=g)
    contexts, actions = torch.randn(12, 3, generator=g), torch.arange(12) % 2
    rewards = contexts.sum(1) * (1 - actions) + 0.1
    for context, action, reward in zip(contexts, actions, rewards, strict=True):
        agent.observe(context, int(action), float(reward))
    new = torch.randn(3, generator=g)
    phi, mean, variance = torch.cat([new, torch.ones(1)]).double(), [], []
    for action in (0, 1):
        own = actions == action
        X = torch.cat([contexts[own], torch.ones(6, 1)], dim=1).double()
        covariance = torch.linalg.inv(torch.eye(4) / prior + X.T @ X / noise)
        mean.append(phi @ covariance @ X.T @ rewards[own].double() / noise)
        variance.append(phi @ covariance @ phi)
    share = np.mean([agent.act(new) for _ in range(2000)])
    expected = torch.special.ndtr((mean[1] - mean[0]) / (variance[0] + variance[1]).sqrt())
    assert abs(share - float(expected)) < 0.04


# Agents


@pytest.mark.parametrize("name", CONFIGS)
def test_networks_learn_from_the_rewards_of_their_own_choices(name):
    config = replace(CONFIGS[name], hidden_layers=(32,), steps=20, batch_size=64)
    played = play(EnsembleAgent(PROBLEM, config, generator=seeded()), blobs().rounds(180, generator=seeded(1)))
    late = played.regrets[90:].sum() / played.uniform_regrets[90:].sum()
    assert late < 0.35


def test_the_linear_agent_learns():
    rounds = blobs().rounds(300, generator=seeded(1))
    assert play(LinearAgent(PROBLEM, noise_variance=0.1, generator=seeded()), rounds).relative_regret < 40


def test_acting_learns_nothing_and_every_action_is_tried_first():
    agent = EnsembleAgent(PROBLEM, SMALL, generator=seeded())
    assert [agent.act([0.0, 0.0]) for _ in range(3)] == [0, 0, 0]
    taken = []
    for _ in range(9):
        taken.append(agent.act([0.0, 0.0]))
        agent.observe([0.0, 0.0], taken[-1], 0.0)
    assert taken == [0, 1, 2] * 3


def test_updates_can_be_left_to_the_caller():
    agent = EnsembleAgent(PROBLEM, replace(SMALL, update_every=None), generator=seeded())
    with pytest.raises(ValueError, match="none was observed yet"):
        agent.update()
    start = agent.ensemble(torch.zeros(1, 2))
    for n in range(50):
        agent.observe([0.1 * n, 0.0], n % 3, 1.0)
    assert torch.equal(agent.ensemble(torch.zeros(1, 2)), start)
    agent.update()
    assert not torch.equal(agent.ensemble(torch.zeros(1, 2)), start)


def test_the_divergence_has_bayes_weight():
    """With N rounds in batches of B the divergence has the weight α B/N: the same posterior for any batch size."""
    agent = EnsembleAgent(PROBLEM, replace(SMALL, alpha=0.5, update_every=None), generator=seeded())
    for rounds, weight in ((20, 0.5), (20, 0.25), (40, 0.125)):
        for _ in range(rounds):
            agent.observe([0.0, 0.0], 0, 1.0)
        loss = batch_loss(agent.ensemble, agent.memory.batch()[:20], agent.method)
        data, kl = loss.terms["data"], loss.terms["kl"]
        assert_close(loss.total / SMALL.members, data + weight * kl / 20)


def test_rewards_are_learned_in_units_of_their_scale():
    """Rewards five times as large with a scale of 5 train the same weights as rewards with a scale of 1."""
    agents = [EnsembleAgent(PROBLEM, replace(SMALL, reward_scale=scale), generator=seeded()) for scale in (1.0, 5.0)]
    for n in range(20):
        for agent in agents:
            agent.observe([0.1 * n, 1.0], n % 3, agent.config.reward_scale * (n % 2))
    assert vars_equal(*agents)
    assert agents[1].memory.columns()["rewards"].max() == 1.0


@pytest.mark.parametrize("name", AGENTS)
def test_saving_changes_no_decision(name, tmp_path):
    """70 rounds without interruption, and 25 + 45 with a file between: the same actions, and equal tensors."""
    rounds = blobs().rounds(70, generator=seeded(1))
    first, rest = (
        dataclasses.replace(rounds, **{k: v[part] for k, v in vars(rounds).items()})
        for part in (slice(25), slice(25, 70))
    )
    through = agents()[name]
    play(through, first)
    loaded = load_agent(through.save(tmp_path / "agent"), problem=PROBLEM)
    through_file = play(loaded, rest).actions
    assert torch.equal(play(through, rest).actions, through_file)
    again = load_agent(through.save(tmp_path / "one"))
    assert vars_equal(again, load_agent(loaded.save(tmp_path / "two")))
    assert len(list((tmp_path / "agent").iterdir())) == 2


def vars_equal(one, other):
    ours, theirs = (
        agent._tensors() if hasattr(agent, "_tensors") else {"g": agent.generator.get_state()} for agent in (one, other)
    )
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_an_agent_is_saved_over_itself(tmp_path):
    agent = EnsembleAgent(PROBLEM, SMALL, generator=seeded())
    agent.save(tmp_path / "agent")
    agent.observe([0.0, 1.0], 2, 1.0)
    agent.save(tmp_path / "agent")
    assert len(load_agent(tmp_path / "agent").memory) == 1
    assert len(list((tmp_path / "agent").iterdir())) == 2


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_has_observed_nothing_is_loaded_and_learns(name, tmp_path):
    agent = agents()[name]
    loaded = load_agent(agent.save(tmp_path / "agent"))
    for n in range(3):
        for a in (agent, loaded):
            a.observe([0.1 * n, 1.0], n % 3, 1.0)
    assert vars_equal(agent, loaded)


# Invalid values and damaged files


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize(
    "context, action, reward, message",
    [
        ([0.0, 0.0, 0.0], 0, 1.0, r"one row of 2 features, but its shape is \(3,\)"),
        ([[0.0, 0.0]], 0, 1.0, r"its shape is \(1, 2\)"),
        ([0.0, NAN], 0, 1.0, "feature 1 is nan"),
        ([0.0, 0.0], 3, 1.0, "from 0 to 2, but it is 3"),
        ([0.0, 0.0], -1, 1.0, "from 0 to 2, but it is -1"),
        ([0.0, 0.0], True, 1.0, "from 0 to 2, but it is True"),
        ([0.0, 0.0], 1, NAN, "finite number, but it is nan"),
        ([0.0, 0.0], 1, math.inf, "finite number, but it is inf"),
    ],
)
def test_invalid_observations_leave_the_agent_unchanged(name, context, action, reward, message):
    agent, twin = agents()[name], agents()[name]
    for a in (agent, twin):
        a.observe([1.0, 0.0], 1, 1.0)
    with pytest.raises(ValueError, match=message):
        agent.observe(context, action, reward)
    assert vars_equal(agent, twin)


@pytest.mark.parametrize("name", AGENTS)
def test_a_context_of_another_width_is_refused(name):
    agent, twin = agents()[name], agents()[name]
    with pytest.raises(ValueError, match="one row of 2 features"):
        agent.act(np.zeros(5))
    assert vars_equal(agent, twin)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"method": "ucb"}, "one of de, rde, rms, degp, but it is 'ucb'"),
        ({"members": 0}, "members must be at least 1"),
        ({"noise_variance": 0.0}, "noise_variance must be positive"),
        ({"update_every": 0}, "update_every counts rounds"),
    ],
)
def test_invalid_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        AgentConfig(**change)


def test_a_problem_needs_a_choice():
    with pytest.raises(ValueError, match="two actions"):
        Problem(3, 1)
    with pytest.raises(ValueError, match="weight_variance must be positive"):
        LinearAgent(PROBLEM, weight_variance=0.0)


def edited(folder, **changes):
    path = folder / "agent.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.fixture
def saved(tmp_path):
    return EnsembleAgent(PROBLEM, SMALL, generator=seeded()).save(tmp_path / "agent")


def test_an_agent_of_another_problem_is_refused(saved):
    with pytest.raises(AgentError, match="for 4 features and 3 actions, but it is for 2 features and 3 actions"):
        load_agent(saved, problem=Problem(4, 3))


def test_files_that_do_not_fit_are_refused(saved):
    settings = json.loads((saved / "agent.json").read_text())["settings"]
    for changes, message in (
        ({"agent": "Oracle"}, "has a 'Oracle'"),
        ({"schema": 99}, "has schema 99"),
        ({"settings": settings | {"members": 4}}, "ensemble/stacked.0.bias is .3, 16.* should be .4, 16"),
        ({"settings": settings | {"method": "rms"}}, "method/penalty.anchors.0.0/bias is nothing"),
        ({"settings": settings | {"method": "ucb"}}, "must be as save wrote it, but a method must be one of"),
        ({"problem": {"num_features": 2}}, "cannot be read"),
    ):
        before = json.loads((saved / "agent.json").read_text())
        with pytest.raises(AgentError, match=message):
            load_agent(edited(saved, **changes))
        edited(saved, **before)
    load_agent(saved)


@pytest.mark.parametrize("name", CONFIGS)
def test_agents_of_schema_1_are_loaded(name, tmp_path):
    """They had "greedy" among the methods, a probability of exploration in place of a rule, and other tensor names."""
    agent = EnsembleAgent(PROBLEM, CONFIGS[name], generator=seeded())
    folder = agent.save(tmp_path / "agent")
    facts, path = json.loads((folder / "agent.json").read_text()), next(folder.glob("*.safetensors"))
    settings = {key: value for key, value in facts["settings"].items() if key != "rule"}
    save_file({key.replace("method/", "objective/"): value for key, value in load_file(path).items()}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edited(folder, schema=1, sha256=digest, settings=settings | {"method": name, "exploration": 0.05})
    loaded = load_agent(folder)
    assert loaded.config == agent.config
    assert vars_equal(loaded, agent)


def test_damaged_and_foreign_folders_are_refused(saved, tmp_path):
    tensors = next(saved.glob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(AgentError, match="damaged"):
        load_agent(saved)
    with pytest.raises(AgentError, match="cannot be read"):
        load_agent(tmp_path / "nothing")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(AgentError, match="must be new, empty or an agent"):
        UniformAgent(PROBLEM).save(tmp_path / "other")
