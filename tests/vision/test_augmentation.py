"""Random crops and flips equal a loop over images, and normalisation has the mean and scale of each channel."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from degp.vision.augmentation import CIFAR10_SCALE, CIFAR100_SCALE, FASHION_MNIST_SCALE, CropAndFlip, Normalise


def moved_in_a_loop(images, corners, flips, padding):
    """Each image cropped from a padded one, in a loop."""
    out = torch.empty_like(images)
    for i, ((top, left), flip) in enumerate(zip(corners.tolist(), flips.tolist(), strict=True)):
        _, H, W = images[i].shape
        canvas = F.pad(images[i], [padding] * 4)
        crop = canvas[:, top : top + H, left : left + W]
        out[i] = crop.flip(-1) if flip else crop
    return out


def random_images(*shape, seed=0):
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@given(
    shape=st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    padding=st.integers(0, 5),
    seed=st.integers(0, 2**31),
)
def test_a_batch_equals_a_loop_over_images(shape, padding, seed):
    images, move = random_images(*shape, seed=seed), CropAndFlip(padding)
    generators = [torch.Generator().manual_seed(seed) for _ in range(2)]
    corners, flips = move.draw(len(images), images.device, generators[0])
    expected = moved_in_a_loop(images, corners, flips, padding)
    assert_close(move(images, generators[1]), expected, rtol=0, atol=0)
    assert_close(move.apply(images, corners, flips), expected, rtol=0, atol=0)


def test_all_crops_and_flips_are_equally_likely(generator):
    corners, flips = CropAndFlip(1).draw(90_000, torch.device("cpu"), generator)
    counts = (corners[:, 0] * 6 + corners[:, 1] * 2 + flips).bincount()  # 18 cells of 5000 ± 69 each
    assert len(counts) == 18 and (counts - 5000).abs().max() < 5 * 69


def test_padding_is_black():
    images = torch.full((1, 3, 4, 4), 255, dtype=torch.uint8)
    moved = CropAndFlip(1).apply(images, torch.tensor([[0, 1]]), torch.tensor([False]))
    assert moved[0, :, 0].eq(0).all() and moved[0, :, 1:].eq(255).all()


def test_augmentation_depends_only_on_the_generator(generator):
    images, before = random_images(8, 3, 32, 32), torch.get_rng_state()
    first = CropAndFlip()(images, generator)
    assert_close(torch.get_rng_state(), before)
    assert_close(CropAndFlip()(images, torch.Generator().manual_seed(0)), first)
    assert not torch.equal(CropAndFlip()(images, generator), first)
    torch.manual_seed(1)
    default = CropAndFlip()(images)
    torch.manual_seed(1)
    assert_close(CropAndFlip()(images), default)


def test_augmentation_never_reads_values_on_the_host():
    """Meta tensors fail where the host reads a value, as a CUDA graph would."""
    images = torch.empty(5, 3, 32, 32, dtype=torch.uint8, device="meta")
    assert CropAndFlip()(images).shape == images.shape
    assert Normalise(*CIFAR10_SCALE).to("meta")(images).dtype == torch.float32


def test_padding_must_not_be_negative():
    with pytest.raises(ValueError, match="padding must be 0 or more pixels, but it is -1; 0 flips only"):
        CropAndFlip(-1)


@pytest.mark.compiled
def test_augmentation_compiles_to_one_graph():
    images, scale = random_images(6, 3, 32, 32), Normalise(*CIFAR10_SCALE)
    corners, flips = CropAndFlip().draw(6, images.device)
    compiled = torch.compile(lambda x, c, f: scale(CropAndFlip().apply(x, c, f)), fullgraph=True)
    assert_close(compiled(images, corners, flips), scale(CropAndFlip().apply(images, corners, flips)))
    assert torch.compile(CropAndFlip(), fullgraph=True)(images).shape == images.shape


# Normalisation


@pytest.mark.parametrize("scale", [CIFAR10_SCALE, CIFAR100_SCALE, FASHION_MNIST_SCALE])
@pytest.mark.parametrize("channels_last", [False, True])
def test_each_channel_is_normalised_by_its_mean_and_std(scale, channels_last):
    images = random_images(4, len(scale[0]), 6, 5)
    mean, std = (torch.tensor(values)[:, None, None] for values in scale)
    result = Normalise(*scale, channels_last=channels_last)(images)
    assert_close(result, (images.float() / 255 - mean) / std)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert result.is_contiguous(memory_format=layout)


def test_fashion_mnist_is_scaled_to_minus_1_and_1():
    ends = torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2)
    assert_close(Normalise(*FASHION_MNIST_SCALE)(ends).flatten(), torch.tensor([-1.0, 1.0]))


def test_the_dtype_is_that_of_the_module():
    assert Normalise(*CIFAR10_SCALE).double()(random_images(1, 3, 2, 2)).dtype == torch.float64


@pytest.mark.parametrize("mean, std", [((0.5,), (0.5, 0.5)), ((0.5,), (0.0,))])
def test_every_channel_needs_a_mean_and_a_positive_std(mean, std):
    with pytest.raises(ValueError, match="one mean and one positive std for each channel, but mean is"):
        Normalise(mean, std)
