"""Context images are made of the batch's patches, channels and statistics, and of nothing else."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from degp.measurement import MeasurementAlone
from degp.runtime.execution import Vmap
from degp.vision import ChannelMix, PatchShuffle, SmoothNoise, context_images, initialise, train
from degp.vision.saving import load_members, save_members
from tests.fixtures import seeded
from tests.vision.cases import SETS, recipe

SAMPLERS = [PatchShuffle(5), SmoothNoise(5), ChannelMix(5), context_images(7)]


def batch(B=6, C=3, H=16, W=8, seed=0):
    return torch.randn(B, C, H, W, generator=torch.Generator().manual_seed(seed)).double()


def patches(image, grid):
    """The patches of an image as rows, sorted."""
    rows = [part for band in image.tensor_split(grid, 1) for part in band.tensor_split(grid, 2)]
    flat = torch.stack([part.flatten() for part in rows])
    return flat[flat[:, 0].argsort()]


def test_shuffled_patches_are_those_of_one_image(generator):
    images, moved = batch(), 0
    for shuffled in PatchShuffle(20, grid=4)(images, generator=generator):
        sources = [image for image in images if torch.equal(patches(image, 4), patches(shuffled, 4))]
        assert len(sources) == 1
        moved += not torch.equal(sources[0], shuffled)
    assert moved == 20


def test_each_order_of_patches_is_equally_likely(generator):
    image = torch.arange(4.0).view(1, 1, 2, 2)
    shuffled = PatchShuffle(24_000, grid=2)(image, generator=generator).flatten(1).long()
    counts = (shuffled * torch.tensor([64, 16, 4, 1])).sum(1).bincount()
    counts = counts[counts > 0]
    assert len(counts) == 24 and (counts - 1000).abs().max() < 5 * 31


def test_mixed_channels_are_a_blend_of_two_images(generator):
    """Every result lies in the span of the channels of one image and of another image, channel by channel."""
    images = batch(B=2)
    for mixed in ChannelMix(8)(images, generator=generator):
        errors = []
        for first, second in ((0, 0), (0, 1), (1, 0), (1, 1)):
            for channel, values in enumerate(mixed.flatten(1)):
                columns = torch.cat([images[first].flatten(1), images[second, channel].flatten()[None]]).T
                fitted = torch.linalg.lstsq(columns, values[:, None], driver="gelsd").solution
                errors.append(((columns @ fitted)[:, 0] - values).norm())
        assert min(sum(errors[3 * pair : 3 * pair + 3]) for pair in range(4)) < 1e-9


def test_mixes_are_those_of_their_definition():
    """u R x + (1 − u) x', number by number, with the same draws."""
    images, draws = batch(B=3), seeded(5)
    made = ChannelMix(4)(images, generator=seeded(5))
    first, second = (torch.randint(3, (4,), generator=draws) for _ in range(2))
    rows = torch.randn(4, 3, 3, generator=draws, dtype=images.dtype)
    u = 0.5 + 0.5 * torch.rand(4, generator=draws, dtype=images.dtype)
    for k in range(4):
        for channel, row in enumerate(rows[k]):
            mixed = sum(row[c] * images[first[k], c] for c in range(3)) / row.square().sum().sqrt()
            assert_close(made[k, channel], u[k] * mixed + (1 - u[k]) * images[second[k], channel])


def test_noise_is_that_of_its_definition():
    """1.5 std Σ_g w_g noise_g + mean within the range of each channel, with Σ_g w_g² = 1, and the same draws."""
    images, draws = batch(B=3), seeded(5)
    made = SmoothNoise(4)(images, generator=seeded(5))
    w = torch.rand(4, 3, generator=draws, dtype=images.dtype)
    noise = torch.zeros(4, *images.shape[1:], dtype=images.dtype)
    for g, cells in enumerate((2, 4, 8)):
        coarse = torch.randn(4, 3, cells, cells, generator=draws, dtype=images.dtype)
        for k in range(4):
            fine = F.interpolate(coarse[k][None], images.shape[2:], mode="bilinear")[0]
            noise[k] += w[k, g] / w[k].square().sum().sqrt() * fine
    for c in range(3):
        values = images[:, c]
        expected = values.mean() + 1.5 * values.std() * noise[:, c]
        assert_close(made[:, c], expected.clamp(values.min(), values.max()))


@pytest.mark.parametrize("count", [3, 4, 5, 32])
def test_there_are_as_many_images_as_asked_for(count):
    assert len(context_images(count)(batch())) == count


def test_noise_has_the_scale_and_the_range_of_each_channel(generator):
    scale, shift = torch.tensor([0.5, 1.0, 2.0]).view(3, 1, 1), torch.tensor([1.0, 0.0, -1.0]).view(3, 1, 1)
    images = batch(B=64) * scale + shift
    noise = SmoothNoise(4000)(images, generator=generator)
    low, high = images.amin((0, 2, 3)), images.amax((0, 2, 3))
    assert (noise.amin((0, 2, 3)) >= low).all() and (noise.amax((0, 2, 3)) <= high).all()
    assert_close(noise.mean((0, 2, 3)), shift.flatten().double(), rtol=0, atol=0.15)
    spread = noise.std((0, 2, 3)) / scale.flatten()
    assert_close(spread, spread.mean().expand(3), rtol=0.1, atol=0)


def test_noise_is_smooth(generator):
    noise = SmoothNoise(200)(batch(H=32, W=32), generator=generator)
    steps = (noise[..., 1:] - noise[..., :-1]).std()
    assert steps < 0.35 * noise.std()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_the_generator_decides_and_no_value_is_read(sampler):
    images, before = batch(), torch.get_rng_state()
    one, same, other = (sampler(images, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert sampler(images.to("meta")).shape == one.shape  # meta tensors fail where the host reads a value


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_context_images_join_the_batch_without_a_conversion(sampler, layout):
    images = batch().float().contiguous(memory_format=layout)
    made = sampler(images)
    assert made.dtype == images.dtype and made.is_contiguous(memory_format=layout)
    assert torch.cat([images, made]).is_contiguous(memory_format=layout)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="an image of each of three kinds, but count is 2"):
        context_images(2)
    for make in (PatchShuffle, SmoothNoise, ChannelMix):
        with pytest.raises(ValueError, match="number of context images and must be at least 1, but it is 0"):
            make(0)
    with pytest.raises(ValueError, match="at least 2 rows and columns, but grid is 1"):
        PatchShuffle(3, grid=1)
    with pytest.raises(ValueError, match="patches must tile the image, but 16 × 8 pixels have no 3 × 3 equal patches"):
        PatchShuffle(3, grid=3)(batch())


def test_a_recipe_trains_with_context_and_its_members_are_saved(tmp_path):
    plain = replace(recipe(), context=context_images(6))
    alone = replace(plain, domain=MeasurementAlone())
    runs = [train(each, SETS.train, seed=0, execution=Vmap(), progress=False) for each in (recipe(), plain, alone)]
    divergences = [run.history.column("kl")[0] for run in runs]
    assert divergences[2] < divergences[0] < divergences[1]  # on 6, on 16 and on 22 points
    save_members(runs[2], tmp_path)
    again = load_members(tmp_path, alone, seed=0)
    assert_close(again.outputs(SETS.test.inputs), runs[2].outputs(SETS.test.inputs), rtol=0.01, atol=0.01)
    with pytest.raises(ValueError, match="another run, whose domain is"):
        load_members(tmp_path, plain, seed=0)


def test_a_variant_is_made_of_the_named_method():
    made = []
    initialise(replace(recipe("rde"), variant=lambda method: made.append(method) or method), seed=0)
    assert [type(method).__name__ for method in made] == ["Memberwise"]
