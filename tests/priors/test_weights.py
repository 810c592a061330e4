"""Priors over weights: variances by fan-in, draws that have them, and the energy of a network."""

import math
import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from degp.priors import NNGP, WeightPrior
from tests.fixtures import seeded

NETWORK = nn.Sequential(nn.Conv2d(6, 8, 3, groups=2), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 3, bias=False))


def test_variances_follow_the_fan_in_and_leave_batch_norm_alone():
    expected = {"0.weight": 2 / 27, "0.bias": 0.5, "3.weight": 2 / 8}
    assert WeightPrior(biases=0.5).variances(NETWORK) == pytest.approx(expected)


def test_variances_per_layer_follow_the_order_of_the_network():
    expected = {"0.weight": 1 / 27, "0.bias": 0.5, "3.weight": 4 / 8}
    assert WeightPrior([1.0, 4.0], [0.5, 0.7]).variances(NETWORK) == pytest.approx(expected)


@pytest.mark.parametrize(
    "layer, expected",
    [
        (nn.Linear(5, 2), {"weight": 2 / 5, "bias": 0.5}),
        (nn.Conv1d(4, 2, 3), {"weight": 2 / 12, "bias": 0.5}),
        (nn.Bilinear(3, 4, 2), {"weight": 2 / 12, "bias": 0.5}),
        (nn.GRU(3, 4), {"weight_ih_l0": 2 / 3, "weight_hh_l0": 2 / 4, "bias_ih_l0": 0.5, "bias_hh_l0": 0.5}),
        (
            nn.MultiheadAttention(4, 2, kdim=3, add_bias_kv=True),
            {
                **{"q_proj_weight": 2 / 4, "k_proj_weight": 2 / 3, "v_proj_weight": 2 / 4, "out_proj.weight": 2 / 4},
                **{"in_proj_bias": 0.5, "bias_k": 0.5, "bias_v": 0.5, "out_proj.bias": 0.5},
            },
        ),
        (
            nn.MultiheadAttention(4, 2),
            {"in_proj_weight": 2 / 4, "in_proj_bias": 0.5, "out_proj.weight": 2 / 4, "out_proj.bias": 0.5},
        ),
        (nn.Embedding(3, 4), {}),
    ],
    ids=lambda case: type(case).__name__,
)
def test_variances_of_a_layer(layer, expected):
    assert WeightPrior(biases=0.5).variances(layer) == pytest.approx(expected)


def test_computed_weights_have_no_prior_and_are_named():
    network = nn.Sequential(nn.Linear(3, 4), nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2)))
    with pytest.warns(UserWarning, match=r"a parametrisation computes have no prior, here those of 1: they are not"):
        assert set(WeightPrior().variances(network)) == {"0.weight", "0.bias", "1.bias"}


def test_a_tied_weight_counts_once():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    parameters = dict(network.named_parameters())
    squares = sum(
        value.square().sum() / (2 * (2 / 3 if "weight" in name else 0.5)) for name, value in parameters.items()
    )
    assert_close(WeightPrior(biases=0.5).energy(network, parameters), squares)


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


def test_energy_has_the_right_gradient():
    parameters = {name: p.detach().double().requires_grad_() for name, p in NETWORK.named_parameters()}
    names = list(parameters)

    def energy(*values):
        return WeightPrior().energy(NETWORK, dict(zip(names, values, strict=True)))

    assert torch.autograd.gradcheck(energy, tuple(parameters.values()))
    assert torch.autograd.gradgradcheck(energy, tuple(parameters.values()))


REFUSED = {
    "the variances of weights must be positive, but the minimum is 0.0": lambda: WeightPrior([1.0, 0.0]),
    "the variances of biases must be positive, but the minimum is -0.1": lambda: WeightPrior(biases=-0.1),
    "one number or one per layer, but there are 3 for 2 layers": lambda: WeightPrior([1.0] * 3).variances(NETWORK),
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_arguments_are_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message]()


def test_default_variances_are_those_of_the_default_kernel():
    network = nn.Linear(4, 2)
    assert WeightPrior().variances(network) == {"weight": NNGP(0).weight_variances / 4, "bias": NNGP(0).bias_variances}
