"""Agents learn from what they chose, lose nothing on the way through a file, and say what they cannot take."""

import dataclasses
import gzip
import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from degp import Batch, Ensemble, Gaussian, PointwiseAverage, data, fit, objectives, posterior, priors
from degp.bandits import (
    AgentError,
    EnsembleAgent,
    EpsilonGreedy,
    LinearAgent,
    PartialGaussian,
    Problem,
    ProcessDraw,
    Recipe,
    TableBandit,
    UniformAgent,
    classification,
    covertype,
    load_agent,
    mushroom,
    play,
    random_member,
)
from degp.bandits.feedback import observations
from degp.bandits.recipe import METHODS
from degp.data import DataSetError
from degp.data.class_tables import read_cover_types, read_mushrooms
from degp.likelihoods import Likelihood
from degp.nets import mlp

PROBLEM = Problem(num_features=2, num_actions=3)
SMALL = Recipe(hidden_layers=(16,), members=3, steps=3, batch_size=32, update_every=20, learning_rate=0.01)
NAN = math.nan


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def blobs(seed=0):
    """Three classes around three centres: a bandit that a network learns in a few hundred rounds."""
    g = seeded(seed)
    labels = torch.randint(3, (600,), generator=g)
    centres = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    return classification(centres[labels] + 0.5 * torch.randn(600, 2, generator=g), labels)


def agents(generator=seeded):
    small = {method: EnsembleAgent(PROBLEM, replace(SMALL, method=method), generator=generator()) for method in METHODS}
    return {
        **small,
        "linear": LinearAgent(PROBLEM, generator=generator()),
        "uniform": UniformAgent(PROBLEM, generator=generator()),
    }


AGENTS = (*METHODS, "linear", "uniform")


# The likelihood of what was chosen


@pytest.mark.parametrize("M, N, C", [(2, 1, 1), (3, 5, 2), (4, 3, 7)])
def test_only_observed_outputs_count(M, N, C, generator):
    outputs = torch.randn(M, N, C, dtype=torch.float64, generator=generator)
    actions, rewards = (
        torch.randint(C, (N,), generator=generator),
        torch.randn(N, dtype=torch.float64, generator=generator),
    )
    partial, whole, rows = PartialGaussian(0.3), Gaussian(0.3), torch.arange(N)
    targets, chosen = observations(actions, rewards, C), outputs[:, rows, actions][..., None]
    q = posterior(outputs)
    own = posterior(chosen, diagonal=float(q.diagonal[0, 0]))
    assert_close(partial.log_prob(outputs, targets), whole.log_prob(chosen, rewards[:, None]))
    assert_close(partial.expected_log_prob(q, targets), whole.expected_log_prob(own, rewards[:, None]))


def test_fully_observed_is_the_gaussian_likelihood(generator):
    outputs, targets = torch.randn(3, 4, 2, generator=generator), torch.randn(4, 2, generator=generator)
    partial, whole, q = PartialGaussian(0.3), Gaussian(0.3), posterior(outputs)
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


def test_what_was_not_observed_has_no_gradient(generator):
    outputs = torch.randn(3, 2, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    targets = torch.tensor([[1.0, NAN], [NAN, NAN]], dtype=torch.float64)
    likelihood = PartialGaussian(0.3)
    (gradient,) = torch.autograd.grad(likelihood.expected_log_prob(posterior(outputs), targets).sum(), outputs)
    assert gradient[:, 0, 0].all() and not gradient[:, 0, 1].any() and not gradient[:, 1].any()
    assert torch.autograd.gradcheck(lambda g: likelihood.log_prob(g, targets), (outputs,))


def test_an_action_never_taken_keeps_its_prior():
    """The data term is on the chosen action, the divergence on both: one is learned, the other stays as wide."""
    g = seeded()
    x = torch.linspace(-2, 2, 12)[:, None]
    targets = torch.cat([torch.sin(2 * x), torch.full_like(x, NAN)], dim=1)
    weights, prior = priors.WeightPrior(2.0, 1.0), priors.NNGP(1, 2.0, 1.0)
    ensemble = Ensemble(lambda: weights.initialise(mlp(1, [64], 2), generator=g), 20)
    objective = objectives.degp(PartialGaussian(0.01), prior, epsilon=1e-3)
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=5e-3)
    fit(ensemble, Batch(x, targets), objective, epochs=200, optimizer=optimizer, generator=g, progress=False)
    std = posterior(ensemble(x).detach(), diagonal=0.0).variance().sqrt()
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


# From members to a decision


def test_a_process_draw_has_the_moments_of_the_posterior(generator):
    outputs = torch.randn(4, 1, 3, generator=generator)
    draws = ProcessDraw(0.05)(outputs.expand(4, 40_000, 3), generator)
    q = posterior(outputs, diagonal=PointwiseAverage(0.05))
    assert_close(draws.mean(0), q.mean[0], atol=0.03, rtol=0)
    assert_close(draws.T.cov(), q.covariances()[0], atol=0.05, rtol=0)


def test_members_are_asked_equally_often(generator):
    outputs = torch.arange(4.0)[:, None, None].expand(4, 8000, 1)
    counts = random_member(outputs, generator).flatten().long().bincount()
    assert_close(counts / 8000, torch.full((4,), 0.25), atol=0.02, rtol=0)


def test_epsilon_greedy_explores_as_often_as_it_says(generator):
    outputs = torch.tensor([[[2.0, 5.0, 1.0]], [[2.0, 7.0, 1.0]]]).expand(2, 9000, 3)
    counts = EpsilonGreedy(0.3)(outputs, generator).argmax(1).bincount(minlength=3)
    assert_close(counts / 9000, torch.tensor([0.1, 0.8, 0.1]), atol=0.02, rtol=0)


def test_the_linear_agent_chooses_as_often_as_its_posterior_says():
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


# Rounds


def test_all_rows_come_once_before_any_comes_again(generator):
    table = TableBandit(torch.arange(5.0)[:, None], torch.zeros(1, 5, 2))
    seen = table.rounds(12, generator=generator).contexts.flatten()
    assert all(sorted(part.tolist()) == [0, 1, 2, 3, 4] for part in (seen[:5], seen[5:10]))
    assert len(table.rounds(0, generator=generator)) == 0


def test_regret_is_counted_in_expected_rewards(generator):
    outcomes = torch.tensor([[[0.0, 5.0]], [[0.0, -35.0]]])
    rounds = TableBandit(torch.zeros(1, 1), outcomes).rounds(4000, generator=generator)
    passing, eating = (torch.full((4000,), action) for action in (0, 1))
    assert_close(rounds.regret(passing), torch.zeros(4000))
    assert_close(rounds.regret(eating), torch.full((4000,), 15.0))
    assert_close(rounds.uniform_regret(), torch.full((4000,), 7.5))
    assert_close(rounds.rewards[:, 1].mean(), torch.tensor(-15.0), atol=1.0, rtol=0)
    assert set(rounds.rewards[:, 1].tolist()) == {5.0, -35.0}


def test_uniform_choice_has_a_relative_regret_of_100():
    played = play(UniformAgent(PROBLEM, generator=seeded()), blobs().rounds(1500, generator=seeded(1)))
    assert abs(played.relative_regret - 100) < 6


def test_mushrooms_pay_as_they_should(monkeypatch):
    table = Batch(torch.eye(2), torch.tensor([0, 1]))  # an edible and a poisonous one
    monkeypatch.setattr(data, "mushroom", lambda: table)
    rounds = mushroom().rounds(2, generator=seeded())
    edible = rounds.contexts[:, 0] == 1
    assert_close(rounds.expected[edible], torch.tensor([[0.0, 5.0]]))
    assert_close(rounds.expected[~edible], torch.tensor([[0.0, -15.0]]))


def test_quantities_of_forest_patches_are_standardised_and_indicators_are_not(monkeypatch):
    g = seeded()
    inputs = torch.cat(
        [100 + 50 * torch.randn(80, 10, generator=g), torch.randint(2, (80, 44), generator=g).float()], 1
    )
    monkeypatch.setattr(data, "covertype", lambda: Batch(inputs, torch.arange(80) % 7))
    environment = covertype()
    assert environment.problem == Problem(54, 7)
    assert_close(environment.contexts[:, :10].std(0, correction=0), torch.ones(10))
    assert_close(environment.contexts[:, 10:], inputs[:, 10:])


# Agents


@pytest.mark.parametrize("name", METHODS)
def test_networks_learn_from_the_rewards_of_their_own_choices(name):
    recipe = replace(SMALL, method=name, hidden_layers=(32,), steps=20, batch_size=64)
    played = play(EnsembleAgent(PROBLEM, recipe, generator=seeded()), blobs().rounds(180, generator=seeded(1)))
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


def test_training_can_be_left_to_the_user():
    agent = EnsembleAgent(PROBLEM, replace(SMALL, update_every=None), generator=seeded())
    with pytest.raises(ValueError, match="none was observed yet"):
        agent.update()
    start = agent.ensemble(torch.zeros(1, 2))
    for n in range(50):
        agent.observe([0.1 * n, 0.0], n % 3, 1.0)
    assert torch.equal(agent.ensemble(torch.zeros(1, 2)), start)
    agent.update()
    assert not torch.equal(agent.ensemble(torch.zeros(1, 2)), start)


def test_the_divergence_weighs_as_much_as_the_batch_stands_for():
    """α for the batch is B/N of α for all rounds: the same posterior, whatever the batch."""
    agent = EnsembleAgent(PROBLEM, replace(SMALL, alpha=0.5, batch_size=20), generator=seeded())
    for rounds, alpha in ((20, 0.5), (20, 0.25), (40, 0.125)):
        for _ in range(rounds):
            agent.observe([0.0, 0.0], 0, 1.0)
        assert agent.objective.alpha == alpha


@pytest.mark.parametrize("name", AGENTS)
def test_saving_changes_no_decision(name, tmp_path):
    """70 rounds in one go, and 25 + 45 with a file between: the same actions, and every tensor to the bit."""
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


# What cannot be


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
def test_what_cannot_be_observed_leaves_the_agent_as_it_was(name, context, action, reward, message):
    agent, twin = agents()[name], agents()[name]
    for a in (agent, twin):
        a.observe([1.0, 0.0], 1, 1.0)
    with pytest.raises(ValueError, match=message):
        agent.observe(context, action, reward)
    assert vars_equal(agent, twin)


@pytest.mark.parametrize("name", AGENTS)
def test_there_is_no_action_for_a_context_of_another_width(name):
    agent, twin = agents()[name], agents()[name]
    with pytest.raises(ValueError, match="one row of 2 features"):
        agent.act(np.zeros(5))
    assert vars_equal(agent, twin)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"method": "ucb"}, "one of degp, de, rde, rms, greedy, but it is 'ucb'"),
        ({"members": 0}, "members must be at least 1"),
        ({"noise_variance": 0.0}, "noise_variance must be positive"),
        ({"update_every": 0}, "update_every counts rounds"),
    ],
)
def test_recipes_that_cannot_be_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**change)


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
        ({"settings": settings | {"method": "rms"}}, "objective/penalty.anchors.0.0/bias is nothing"),
        ({"settings": settings | {"method": "ucb"}}, "must be as save wrote it, but method must be one of"),
        ({"problem": {"num_features": 2}}, "cannot be read"),
    ):
        before = json.loads((saved / "agent.json").read_text())
        with pytest.raises(AgentError, match=message):
            load_agent(edited(saved, **changes))
        edited(saved, **before)
    load_agent(saved)


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


# Tables


MUSHROOMS = "\n".join("p,x," + ",".join("a" * 21) if n % 2 else "e,b," + ",".join("a" * 21) for n in range(6)) + "\n"


def test_mushrooms_become_one_hot(tmp_path):
    (tmp_path / "m.data").write_text(MUSHROOMS)
    batch = read_mushrooms(tmp_path / "m.data")
    assert batch.inputs.shape == (6, 23) and batch.targets.tolist() == [0, 1] * 3
    assert batch.inputs[0].tolist() == [1, 0] + [1] * 21


def test_cover_types_are_read_packed_or_not_and_counted_from_zero(tmp_path):
    rows = "\n".join(",".join(map(str, [2500 + n, -6, *range(52), 1 + n % 7])) for n in range(8)) + "\n"
    (tmp_path / "c.data").write_text(rows)
    (tmp_path / "c.data.gz").write_bytes(gzip.compress(rows.encode()))
    plain, packed = (read_cover_types(tmp_path / name) for name in ("c.data", "c.data.gz"))
    assert torch.equal(plain.inputs, packed.inputs) and plain.inputs[0, :3].tolist() == [2500, -6, 0]
    assert plain.targets.tolist() == [0, 1, 2, 3, 4, 5, 6, 0]


@pytest.mark.parametrize(
    "reader, text, message",
    [
        (read_mushrooms, MUSHROOMS.replace("p,x,", "q,x,", 1), "labels must be whole numbers from 0 to 1"),
        (read_mushrooms, "e,x\np,x\n", "shape"),
        (read_mushrooms, MUSHROOMS[:-3], "cannot be read"),
        (read_cover_types, "1,2,3\n", "shape"),
        (read_cover_types, "1,2\n3\n", "cannot be read"),
        (read_cover_types, ",".join(["1"] * 54 + ["8"]), "from 1 to 7"),
    ],
)
def test_damaged_tables_are_named(reader, text, message, tmp_path):
    (tmp_path / "table.data").write_text(text)
    with pytest.raises(DataSetError, match=message):
        reader(tmp_path / "table.data")


def test_a_table_of_another_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DEGP_DATA", str(tmp_path))
    (tmp_path / "mushroom").mkdir()
    (tmp_path / "mushroom" / "agaricus-lepiota.data").write_text(MUSHROOMS)
    record = data.data_set("mushroom")
    tiny = replace(record, files=(replace(record.files[0], sha256=hashlib.sha256(MUSHROOMS.encode()).hexdigest()),))
    monkeypatch.setitem(data.records.DATA_SETS, "mushroom", tiny)
    with pytest.raises(DataSetError, match=r"\(8124, 117\), but its shape is \(6, 23\)"):
        data.mushroom()
