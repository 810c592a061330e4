"""A recipe: learning rates, the paper's α, and what is refused."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from degp.methods import Kind
from degp.runtime.execution import Grouped, prior_strategy
from degp.vision import Cosine, Milestones, PriorNetworks
from tests.vision.cases import features, recipe


def test_rates_rise_and_then_follow_the_schedule():
    warm = recipe(epochs=8, warm_up=2, schedule=Milestones((0.5, 0.75), 0.1))
    assert [warm.rate_factor(e) for e in range(8)] == pytest.approx([0.5, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])
    cold = recipe(epochs=4, warm_up=0, schedule=Cosine())
    assert [cold.rate_factor(e) for e in range(4)] == pytest.approx(
        [(1 + math.cos(math.pi * e / 4)) / 2 for e in range(4)]
    )


def test_unknown_methods_and_single_members_are_refused():
    assert recipe("rde").method is Kind.RDE
    with pytest.raises(ValueError, match="a method must be one of de, rde, rms, degp, but it is 'map'"):
        recipe("map")
    with pytest.raises(ValueError, match="DE-GP needs at least two members for a covariance, but there is 1"):
        recipe("degp", members=1)


def test_a_recipe_has_an_epoch():
    with pytest.raises(ValueError, match="epochs must be at least 1, but it is 0"):
        replace(recipe("de"), epochs=0)


def test_alpha_of_the_paper_is_bayes_weight_at_batch_size_over_images():
    assert recipe(alpha=16 / 72, batch_size=16).bayes_alpha(72) == pytest.approx(1.0)


def test_a_prior_at_a_lower_resolution_sees_averages_of_pixels():
    coarse = torch.rand(4, 3, 8, 8)
    images = coarse.repeat_interleave(2, 2).repeat_interleave(2, 3)
    noise = 0.1 * torch.randn(4, 3, 8, 8).repeat_interleave(2, 2).repeat_interleave(2, 3)
    noise = noise * torch.tensor([1.0, -1.0]).repeat(8)  # averages to zero over pairs of columns
    network = PriorNetworks(features, resolution=8).features()
    assert_close(network(images + noise), network[1](coarse))
    assert prior_strategy(network, torch.device("cpu")) == Grouped()
    with pytest.raises(ValueError, match="resolution is a number of pixels and must be at least 1, but it is 0"):
        PriorNetworks(features, resolution=0)


def test_the_resolution_of_the_prior_is_part_of_the_recipe():
    plain = recipe()
    half = replace(plain, prior=replace(plain.prior, resolution=16))
    assert [each.describe()["prior_resolution"] for each in (plain, half)] == [None, 16]
