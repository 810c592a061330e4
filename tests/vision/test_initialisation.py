"""Every method starts from the same weights; its own random numbers are independent of them and repeatable."""

from dataclasses import replace

import torch

from degp.priors import Centred
from degp.priors.penalty import draw_anchors
from degp.vision import WEIGHT_PRIOR, PriorNetworks, initialise
from tests.vision.cases import METHODS, features, recipe, state


def anchors(seed):
    _, method = initialise(recipe("rms"), seed=seed)
    return dict(method.penalty.anchors[0].named_buffers())


def test_every_method_starts_from_the_same_weights():
    starts = [state(initialise(recipe(method), seed=5)[0]) for method in METHODS]
    assert all(torch.equal(own[name], starts[0][name]) for own in starts for name in starts[0])
    other = state(initialise(recipe("de"), seed=6)[0])
    assert not torch.equal(other["stacked.0.weight"], starts[0]["stacked.0.weight"])


def test_anchors_repeat_with_the_seed():
    first, second, other = anchors(5), anchors(5), anchors(6)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["0/weight"], other["0/weight"])


def test_anchors_are_independent_of_the_initial_weights():
    ensemble, _ = initialise(recipe("rms"), seed=5)
    assert not torch.equal(anchors(5)["0/weight"], ensemble.stacked[0].weight)
    same_stream = draw_anchors(WEIGHT_PRIOR, ensemble, generator=torch.Generator().manual_seed(5))[0]
    assert not any(torch.equal(anchors(5)[name.replace(".", "/")], value) for name, value in same_stream.items())


def test_the_divergence_has_the_weight_of_the_paper():
    _, method = initialise(recipe(alpha=0.01, batch_size=16), seed=0, num_images=72)
    assert method.alpha * 16 / 72 == 0.01


def test_a_fixed_prior_repeats_with_the_seed():
    fixed = replace(recipe(), prior=PriorNetworks(features, 3, redrawn=False))
    banks = [dict(initialise(fixed, seed=2)[1].prior.weights.named_buffers()) for _ in range(2)]
    assert banks[0] and all(torch.equal(banks[0][name], banks[1][name]) for name in banks[0])


def test_a_centred_prior_is_part_of_the_recipe():
    plain = recipe()
    centred = replace(plain, prior=replace(plain.prior, centred=True))
    assert isinstance(initialise(centred, seed=0)[1].prior, Centred)
    assert [each.describe()["prior_centred"] for each in (plain, centred)] == [False, True]
