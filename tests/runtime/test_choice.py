"""The execution strategy is chosen by rule or by measurement, and choosing changes nothing else."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp import Ensemble
from degp.nets import lite_resnet_features, mlp_features
from degp.priors import MonteCarloNNGP
from degp.runtime.execution import Grouped, Loop, Vmap, candidates_for, fastest, prior_strategy
from tests.ensemble.networks import NETS, Recurrent
from tests.fixtures import normal, seeded

M = 3
CPU = torch.device("cpu")


def test_convolutional_members_take_the_fastest_strategy_that_works():
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.Flatten(1), nn.Linear(144, 2)), M)
    choice = ensemble.choose_execution(normal(5, 3, 8, 8).float())
    assert set(choice.milliseconds) == {"vmap", "loop"}
    assert "; not grouped: flatten from axis 2" in str(choice)
    assert min(choice.milliseconds.values()) >= 0.95 * choice.milliseconds[choice.execution.name]


def test_members_that_no_strategy_supports_are_an_error():
    class Broken(nn.Linear):
        def forward(self, x):
            raise ValueError("broken")

    with pytest.raises(RuntimeError, match=r"one execution strategy must work, but all fail: .*broken"):
        fastest(Broken(2, 2), {}, {}, torch.zeros(3, 2))


def test_candidates_on_the_cpu_need_no_compiler():
    assert candidates_for(torch.zeros(1)) == (Vmap(), Loop(), Grouped())


def dense_head():
    return nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))


def convolutional_head():
    layers = (nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4, 2))
    return nn.Sequential(nn.Unflatten(1, (3, 1)), *layers)


@pytest.mark.parametrize("head, measured", [(dense_head, set()), (convolutional_head, {"vmap", "loop"})])
def test_choosing_changes_nothing_but_the_strategy(head, measured):
    torch.manual_seed(0)
    ensemble = Ensemble(head, M, backbone=nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)))
    inputs = normal(6, 3).float()
    before, random = copy.deepcopy(ensemble.state_dict()), torch.get_rng_state()
    choice = ensemble.choose_execution(inputs)
    assert torch.equal(torch.get_rng_state(), random)
    assert_close(dict(ensemble.state_dict()), dict(before), rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in ensemble.parameters())
    assert ensemble.execution == choice.execution in (Vmap(), Loop())
    assert set(choice.milliseconds) == measured
    assert str(choice).startswith(f"members run by {choice.execution.name}")
    chosen = ensemble.eval()(inputs)
    for ensemble.execution in (Vmap(), Loop()):
        assert_close(ensemble(inputs), chosen)


def test_members_without_convolutions_run_by_vmap():
    choice = Ensemble(dense_head, M).choose_execution(normal(6, 3).float())
    assert (choice.execution, str(choice)) == (Vmap(), "members run by vmap")


def test_a_recurrent_network_runs_in_a_loop():
    with pytest.warns(UserWarning, match="because vmap cannot"):
        choice = Ensemble(Recurrent, 2).choose_execution(NETS["lstm"][1].float())
    assert (choice.execution, dict(choice.milliseconds)) == (Loop(), {})


def test_convolutional_priors_run_grouped():
    prior = MonteCarloNNGP(lite_resnet_features(8).double(), num_draws=4)
    assert prior_strategy(prior.features, CPU) == Grouped()
    by_vmap = MonteCarloNNGP(lite_resnet_features(8).double(), num_draws=4, execution=Vmap())
    x = normal(5, 3, 8, 8)
    assert_close(*(p.kernel(generator=seeded(3))(x, x) for p in (prior, by_vmap)))


@pytest.mark.parametrize(
    "features",
    [mlp_features(3, [8]), nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), nn.Sequential(nn.Conv2d(3, 4, 1))],
    ids=["dense", "with buffers", "not groupable"],
)
def test_other_priors_run_by_vmap(features):
    assert prior_strategy(features, CPU) == Vmap()
