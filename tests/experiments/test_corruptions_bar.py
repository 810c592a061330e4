"""The corruptions of CIFAR-10-C̄: each equals a slow reference, image by image, and all share the same properties."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import ndimage

from experiments.data.corruptions.catalogue import CHUNK
from experiments.data.corruptions_bar import CORRUPTIONS_BAR, corrupt_bar
from experiments.data.corruptions_bar.catalogue import CATALOGUE_BAR
from experiments.data.corruptions_bar.distortion import interpolated, twirled_places
from experiments.data.corruptions_bar.occlusion import covered_cells, line_opacity
from experiments.data.corruptions_bar.sparkles import shine
from experiments.data.corruptions_bar.spectral import spectral_noise, squared_frequencies
from experiments.data.corruptions_bar.splines import enlargement

SEVERITIES = range(1, 6)
PIXELS = tuple(product(range(32), repeat=2))


def some_images(count=4, seed=0):
    """Smooth coloured images with a white, a black and a grey patch, as photographs have them."""
    noise = torch.rand((count, 3, 7, 7), generator=torch.Generator().manual_seed(seed))
    images = torch.nn.functional.interpolate(noise, 32, mode="bicubic").mul(320).sub(32)
    images[:, :, :6, :9], images[:, :, 20:26, 3:8], images[:, :, 5:11, 20:30] = 255, 0, 128
    return images.clamp(0, 255).to(torch.uint8)


IMAGES = some_images()


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def corrupted(name, severity, images=IMAGES):
    return corrupt_bar(images, name, severity, generator=seeded())


def level_of(name, severity):
    return CATALOGUE_BAR[name].severities[severity - 1][0]


def plain(level, count=2):
    return torch.full((count, 3, 32, 32), level, dtype=torch.uint8)


def distance(images, others):
    return (images.double() - others.double()).abs().mean().item()


def uniform(*shape, generator):
    return torch.rand(shape, generator=generator, dtype=torch.double).numpy()


# Noise


@pytest.mark.parametrize("blue", [True, False])
def test_spectral_noise_is_the_sum_of_its_waves(blue):
    amplitudes = squared_frequencies(torch.device("cpu")).sqrt() if blue else torch.ones(32, 32, dtype=torch.double)
    (noise,) = spectral_noise(amplitudes, 1, generator=seeded()).numpy()
    draws = 2 * np.pi * uniform(32, 16, generator=seeded())
    rows, columns = np.mgrid[:32, :32]
    expected = np.zeros((32, 32))
    for i, j in PIXELS:
        phase = draws[i, j] if j < 16 else draws[31 - i, 31 - j]
        wave = np.cos(2 * np.pi * ((i - 16) * rows + (j - 16) * columns) / 32 + phase)
        expected += amplitudes[i, j].item() * wave
    assert noise.std() == pytest.approx(1)
    np.testing.assert_allclose(noise, expected / expected.std(), atol=1e-9)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_blue_noise_sample_blackens_the_expected_fraction_of_pixels(severity):
    threshold = 0.3 * level_of("blue_noise_sample", severity) - 2.5
    black = corrupted("blue_noise_sample", severity, plain(200, 100)) == 0
    assert torch.equal(black[:, 0], black.all(1)) and torch.equal(black[:, 0], black.any(1))
    below = 0.5 * math.erfc(-threshold / math.sqrt(2))  # the noise is a sum of 1,024 waves: nearly normal
    assert black.double().mean().item() == pytest.approx(below, rel=0.1)


def test_blue_noise_keeps_black_pixels_apart():
    black = (corrupted("blue_noise_sample", 5, plain(200, 100)) == 0)[:, 0].double()
    neighbours = (black[:, :, 1:] * black[:, :, :-1]).mean()
    assert neighbours < 0.7 * black.mean().square()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brownish_noise_is_scaled_per_channel(severity):
    strength = 6.4 * level_of("brownish_noise", severity)
    noise = spectral_noise(1 / (squared_frequencies(torch.device("cpu")) + 1), 12, generator=seeded())
    expected = (IMAGES + strength * noise.view(IMAGES.shape)).clamp(0, 255).to(torch.uint8)
    assert torch.equal(corrupted("brownish_noise", severity), expected)


# Sparkles


def test_shine_equals_its_formula_pixel_by_pixel():
    centres, rays = torch.tensor([[10.3, 20.9], [0.0, 31.5]], dtype=torch.double), torch.tensor([5, 50])
    lengths = 3 + uniform(2, 60, generator=seeded())
    actual = shine(centres, rays, torch.tensor(lengths), power=0.3).numpy()
    for n, (row, column) in product(range(2), PIXELS):
        down, right = row - centres[n, 0].item(), column - centres[n, 1].item()
        u, i = math.modf((math.atan2(right, down) / (2 * math.pi) + 0.5) * rays[n].item())
        first, second = (lengths[n, int(i + step) % rays[n].item()] for step in (0, 1))
        length = (1 - u) * first + u * second
        opacity = (1 - (u - 0.5) ** 2) * (length**2 / (down**2 + right**2 + 1e-4)) ** 0.3
        assert actual[n, row, column] == pytest.approx(min(1, opacity))


def test_sparkles_only_brighten_and_white_stays_white():
    for name in ("sparkles", "inverse_sparkles"):
        assert (corrupted(name, 4) >= IMAGES).all()
        assert (corrupted(name, 5, plain(255)) >= 254).all()


# Occlusion


def test_the_checkerboard_covers_the_drawn_cells():
    angles, sides = torch.tensor([0.0, 0.5, 4.0, 2.5]).double(), torch.tensor([4.0, 3.3, 7.9, 5.0]).double()
    drawn = torch.rand((4, 27, 27), generator=seeded()) < 0.5
    actual = covered_cells(angles, sides, drawn)
    for n, (row, column) in product(range(4), PIXELS):
        cos, sin, side = math.cos(angles[n]), math.sin(angles[n]), sides[n].item()
        u, v = (cos * row + sin * column) / side, (cos * column - sin * row) / side
        black = (math.floor(u) + math.floor(v)) % 2 == 0
        assert actual[n, row, column] == (black and drawn[n, int(u) + 13, int(v) + 13])


def test_an_upright_checkerboard_has_square_cells():
    every = torch.ones(1, 27, 27, dtype=torch.bool)
    covered = covered_cells(torch.zeros(1).double(), torch.full((1,), 4.0).double(), every)[0]
    rows, columns = torch.meshgrid(torch.arange(32) // 4, torch.arange(32) // 4, indexing="ij")
    assert torch.equal(covered, (rows + columns) % 2 == 0)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_the_checkerboard_covers_half_the_drawn_fraction(severity):
    images = plain(10, 400)
    changed = corrupted("checkerboard_cutout", severity, images) != images
    assert changed.double().mean().item() == pytest.approx(level_of("checkerboard_cutout", severity) / 20, rel=0.1)
    assert set(corrupted("checkerboard_cutout", severity, images).unique().tolist()) == {10, 128}


def bresenham(start, end):
    """Opacities of the pixels of an anti-aliased line, from one end to the other (Zingl 2012)."""
    (row, column), opacity = start, {}
    down, right = abs(end[0] - row), abs(end[1] - column)
    next_row, next_column = (1 if row < end[0] else -1), (1 if column < end[1] else -1)
    length, ahead = math.hypot(down, right), 0  # `ahead` is the signed distance from the line, times the length
    while True:
        opacity[row, column] = 1 - abs(ahead) / length
        error, before = ahead + right - down, column
        if 2 * error >= -right:
            if column == end[1]:
                return opacity
            if ahead + right < length:
                opacity[row + next_row, column] = 1 - abs(ahead + right) / length
            ahead -= down
            column += next_column
        if 2 * error <= down:
            if row == end[0]:
                return opacity
            if right - error < length:
                opacity[row, before + next_column] = 1 - (right - error) / length
            ahead += right
            row += next_row


def test_line_opacity_equals_bresenham():
    generator = seeded()
    starts, ends = torch.randint(-40, 72, (2, 200, 2), generator=generator)
    actual = line_opacity(starts.double(), ends.double()).numpy()
    for n in range(200):
        expected = np.zeros((32, 32))
        for pixel, opacity in bresenham(starts[n].tolist(), ends[n].tolist()).items():
            if min(pixel) >= 0 and max(pixel) < 32:
                expected[pixel] = opacity
        np.testing.assert_allclose(actual[n], expected, atol=1e-9)


def test_lines_leave_grey_images_grey():
    assert torch.equal(corrupted("lines", 5, plain(128)), plain(128))


# Distortion


def test_interpolation_equals_scipy():
    places = 40 * torch.rand((4, 32, 32, 2), generator=seeded(), dtype=torch.double) - 4
    actual = interpolated(IMAGES.double(), places).numpy()
    for n, c in product(range(4), range(3)):
        expected = ndimage.map_coordinates(
            IMAGES[n, c].double().numpy(), places[n].movedim(-1, 0).numpy(), order=1, mode="grid-constant"
        )
        np.testing.assert_allclose(actual[n, c], expected, atol=1e-9)


def test_twirled_places_equal_the_formula_pixel_by_pixel():
    angles = 3 * (uniform(1, 3, 3, generator=seeded()) - 0.5)
    actual = twirled_places(torch.tensor(angles), 0.4)[0]
    for row, column in PIXELS:
        expected = [row, column]
        if max(row, column) < 30:
            centre = complex(row // 10 * 10 + 5, column // 10 * 10 + 5)
            offset = complex(row, column) - centre
            d = abs(offset) / 5
            if 0 < d <= 1:
                turn = np.exp(1j * angles[0, row // 10, column // 10] * (1 - d) ** 2)
                place = centre + math.sin(math.pi * d / 2) ** -0.4 * offset * turn
                expected = [place.real, place.imag]
        assert actual[row, column].tolist() == pytest.approx(expected)


def test_pinch_and_twirl_moves_pixels_within_their_cells():
    images = IMAGES.clone()
    images[:, :, 10:20, 10:21], images[:, :, 20, 10:20] = 77, 77  # a cell, and the pixels it borders on
    result = corrupted("pinch_and_twirl_v2", 5, images)
    assert (result[:, :, 10:20, 10:20].int() - 77).abs().max() <= 1
    assert torch.equal(result[:, :, 30:], images[:, :, 30:]) and torch.equal(result[..., 30:], images[..., 30:])


@pytest.mark.parametrize("severity", SEVERITIES)
def test_ripple_equals_scipy(severity):
    amplitude, generator = 0.08 * level_of("ripple", severity), seeded()
    lengths, phases = uniform(2, 2, 4, generator=generator)
    pixels = np.arange(32)
    for n, c in product(range(4), range(3)):
        rows, columns = (
            pixels + amplitude * np.sin(2 * np.pi * (pixels / (3.2 + 6.4 * lengths[a, n]) + phases[a, n]))
            for a in (0, 1)
        )
        places = np.meshgrid(rows, columns, indexing="ij")
        expected = ndimage.map_coordinates(IMAGES[n, c].double().numpy(), places, order=1, mode="grid-constant")
        actual = corrupted("ripple", severity)[n, c].double().numpy()
        assert np.abs(actual - np.trunc(expected)).max() <= 1
        assert (actual != np.trunc(expected)).mean() < 0.2  # rounding moves integer grey levels only


# Splines


@pytest.mark.parametrize("severity", SEVERITIES)
def test_circular_motion_blur_equals_scipy(severity):
    degrees = 1.5 * level_of("circular_motion_blur", severity)
    x = IMAGES.double().numpy() / 255
    steps = np.linspace(-1, 1, 21)
    weights = np.exp(-2 * steps**2)
    turned = [ndimage.rotate(x, u * degrees, axes=(3, 2), reshape=False) for u in steps]
    expected = 255 * np.tensordot(weights / weights.sum(), turned, 1).clip(0, 1)
    actual = corrupted("circular_motion_blur", severity).numpy()
    assert (np.abs(actual + 0.5 - expected) <= 0.501).all()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_transverse_chromatic_aberration_equals_scipy(severity):
    scale = 0.05 * level_of("transverse_chromatic_abberation", severity)
    order = torch.rand((4, 3), generator=seeded()).argsort(1)
    actual = corrupted("transverse_chromatic_abberation", severity).numpy()
    for n, c in product(range(4), range(3)):
        zoomed = ndimage.zoom(IMAGES[n, c].numpy(), 1 + scale * order[n, c].item() / 2, prefilter=False)
        edge = (len(zoomed) - 32) // 2
        difference = np.abs(actual[n, c].astype(int) - zoomed[edge : edge + 32, edge : edge + 32])
        assert difference.max() <= 1 and (difference > 0).mean() < 0.03  # ties in rounding


def test_enlargement_by_one_is_the_spline_of_the_pixels_themselves():
    middle = enlargement(1.0)[10]
    assert middle.nonzero().flatten().tolist() == [9, 10, 11]
    torch.testing.assert_close(middle[9:12], torch.tensor([1, 4, 1]).double() / 6)


# Properties of all corruptions


def test_there_are_10_corruptions_at_5_severities():
    assert len(CORRUPTIONS_BAR) == 10
    assert {len(corruption.severities) for corruption in CATALOGUE_BAR.values()} == {5}


@pytest.mark.parametrize("name", CORRUPTIONS_BAR)
def test_equal_seeds_give_equal_images(name):
    images = some_images(3)
    before = images.clone()
    first, second = corrupted(name, 4, images), corrupted(name, 4, images)
    assert torch.equal(first, second)
    assert torch.equal(images, before)
    assert not torch.equal(first, images)
    assert first.dtype == torch.uint8 and first.shape == images.shape


@pytest.mark.parametrize("name", CORRUPTIONS_BAR)
def test_draws_are_independent_across_images(name):
    twins = corrupted(name, 4, some_images(1).expand(8, -1, -1, -1))
    assert (len(twins.unique(dim=0)) > 1) == ("generator" in CATALOGUE_BAR[name].needs)


@pytest.mark.parametrize("name", CORRUPTIONS_BAR)
def test_the_distance_from_the_clean_image_grows_with_severity(name):
    images = some_images(60)
    distances = [distance(corrupted(name, severity, images), images) for severity in SEVERITIES]
    assert distances == sorted(distances) and distances[0] > 0


@pytest.mark.parametrize("name", CORRUPTIONS_BAR)
def test_any_number_of_images_is_accepted(name):
    assert corrupted(name, 2, IMAGES[:0]).shape == (0, 3, 32, 32)
    assert corrupted(name, 2, plain(3, CHUNK + 1)).shape == (CHUNK + 1, 3, 32, 32)


@pytest.mark.parametrize("level", [0, 100, 255])
@pytest.mark.parametrize(
    "name", ["circular_motion_blur", "pinch_and_twirl_v2", "ripple", "transverse_chromatic_abberation"]
)
def test_distorted_plain_images_stay_plain_away_from_the_border(name, level):
    inner = (..., slice(5, -5), slice(5, -5))
    assert (corrupted(name, 5, plain(level))[inner].int() - level).abs().max() <= 1


# Invalid arguments


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"must be one of blue_noise.*but it is 'riple'; did you mean 'ripple'\?"):
        corrupted("riple", 1)


@pytest.mark.parametrize("severity", [0, 6, -1])
def test_a_severity_must_be_from_1_to_5(severity):
    with pytest.raises(ValueError, match=f"must be 1, 2, 3, 4 or 5, but it is {severity}"):
        corrupted("lines", severity)


def test_images_must_be_bytes_of_the_shape_of_cifar():
    with pytest.raises(ValueError, match=r"must be uint8.*but they are torch.float32"):
        corrupted("lines", 1, IMAGES.float())
    with pytest.raises(ValueError, match=r"must have the shape \(N, 3, 32, 32\), but have \(3, 32, 32\)"):
        corrupted("lines", 1, IMAGES[0])


def test_the_generator_must_be_on_the_device_of_the_images():
    with pytest.raises(ValueError, match="must be on the device of the images, meta, but it is on cpu"):
        corrupted("lines", 1, IMAGES.to("meta"))
