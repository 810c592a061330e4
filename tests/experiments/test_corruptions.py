"""The corruptions of CIFAR-10-C: each equals a slow reference, image by image, and all share the same properties."""

import colorsys
import io
import math
import sys
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from experiments.data import DataSetError
from experiments.data.corruptions import CORRUPTIONS, corrupt, frost_overlays
from experiments.data.corruptions.catalogue import CATALOGUE, CHUNK
from experiments.data.corruptions.overlays import NAMES

SEVERITIES = range(1, 6)
# Corruptions whose parameters all increase with severity.
MONOTONE = {
    *{"gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "gaussian_blur", "motion_blur", "zoom_blur"},
    *{"fog", "contrast", "brightness", "jpeg_compression", "pixelate"},
}


def some_images(count=4, seed=0):
    """Smooth coloured images with a white, a black and a grey patch, as photographs have them."""
    noise = torch.rand((count, 3, 7, 7), generator=torch.Generator().manual_seed(seed))
    images = torch.nn.functional.interpolate(noise, 32, mode="bicubic").mul(320).sub(32)
    images[:, :, :6, :9], images[:, :, 20:26, 3:8], images[:, :, 5:11, 20:30] = 255, 0, 128
    return images.clamp(0, 255).to(torch.uint8)


IMAGES = some_images()
OVERLAYS = tuple(
    torch.randint(256, (3, 40 + i, 50), generator=torch.Generator().manual_seed(i)).byte() for i in range(3)
)


def seeded():
    return torch.Generator().manual_seed(3)


def corrupted(name, severity, images=IMAGES):
    return corrupt(images, name, severity, generator=seeded(), overlays=OVERLAYS)


def channels_last(images):
    return images.permute(0, 2, 3, 1).numpy()


def levels(values):
    """Values in [0, 1] as grey levels, truncated as in the benchmark."""
    return np.uint8(np.clip(values, 0, 1) * 255)


def differences(name, severity, expected):
    """Absolute differences in grey levels between `corrupt` and the references (32, 32, 3), one per image."""
    return np.abs(channels_last(corrupted(name, severity)).astype(int) - np.stack(expected).astype(int))


def assert_same(name, severity, expected, *, fraction=0.002):
    """Equal, except for a fraction of the values that rounding moves across an integer grey level."""
    difference = differences(name, severity, expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() <= fraction


# Noise


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_and_speckle_noise_add_scaled_normals(severity):
    noise = channels_last(torch.randn(IMAGES.shape, generator=seeded()))
    x = channels_last(IMAGES) / 255
    (std,), (factor,) = (CATALOGUE[name].severities[severity - 1] for name in ("gaussian_noise", "speckle_noise"))
    assert_same("gaussian_noise", severity, levels(x + std * noise))
    assert_same("speckle_noise", severity, levels(x * (1 + factor * noise)))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_shot_noise_counts_photons(severity):
    (photons,) = CATALOGUE["shot_noise"].severities[severity - 1]
    x = 64 / 255
    noisy = corrupted("shot_noise", severity, torch.full((50, 3, 32, 32), 64, dtype=torch.uint8)).double() + 0.5
    assert noisy.mean() / 255 == pytest.approx(x, rel=0.01)
    assert noisy.var() / 255**2 == pytest.approx(x / photons, rel=0.05)
    counts = torch.arange(photons + 1, dtype=torch.double) * 255 / photons
    assert set(noisy.long().unique().tolist()) <= set(counts.long().tolist())


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_noise_is_salt_and_pepper_in_single_values(severity):
    (amount,) = CATALOGUE["impulse_noise"].severities[severity - 1]
    grey = torch.full((50, 3, 32, 32), 100, dtype=torch.uint8)
    noisy = corrupted("impulse_noise", severity, grey)
    salt, pepper = (noisy == 255), (noisy == 0)
    assert set(noisy.unique().tolist()) == {0, 100, 255}
    assert salt.double().mean() == pytest.approx(amount / 2, rel=0.1)
    assert pepper.double().mean() == pytest.approx(amount / 2, rel=0.1)
    red, green, blue = (salt | pepper).unbind(1)
    assert (red & green & blue).double().mean() == pytest.approx(amount**3, abs=5e-4)


# Blur


def gaussian_filtered(image, std):
    return ndimage.gaussian_filter(image / 255, (std, std, 0), mode="nearest", truncate=4)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_equals_scipy(severity):
    (std,) = CATALOGUE["gaussian_blur"].severities[severity - 1]
    assert_same("gaussian_blur", severity, [levels(gaussian_filtered(x, std)) for x in channels_last(IMAGES)])


def swapped(image, down, right):
    """The benchmark's swaps one by one: their sides are views of one array."""
    image = image.copy()
    for h, w in product(range(31, 1, -1), repeat=2):
        other = h + down[h, w], w + right[h, w]
        image[h, w], image[other] = image[other], image[h, w]
    return image


@pytest.mark.parametrize("severity", SEVERITIES)
def test_glass_blur_equals_swaps_one_by_one(severity):
    std, rounds = CATALOGUE["glass_blur"].severities[severity - 1]
    generator = seeded()
    steps = [torch.randint(-1, 1, (2, len(IMAGES), 32, 32), generator=generator).numpy() for _ in range(rounds)]
    expected = []
    for i, image in enumerate(channels_last(IMAGES)):
        mixed = np.uint8(gaussian_filtered(image, std) * 255)
        for step in steps:
            mixed = swapped(mixed, *step[:, i])
        expected.append(levels(gaussian_filtered(mixed, std)))
    assert_same("glass_blur", severity, expected)


def disk(radius, smoothing):
    """The weights of a disk smeared by those of its rim, in float32."""
    inside = np.array([[i * i + j * j <= radius**2 for j in range(-4, 5)] for i in range(-4, 5)], dtype=np.float32)
    rim = np.array([math.exp(-(i**2) / (2 * smoothing**2)) for i in (-1, 0, 1)])
    kernel = inside / inside.sum()
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, (rim / rim.sum()).astype(np.float32), axis)
    return kernel


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur_equals_a_correlation_with_a_disk(severity):
    kernel = disk(*CATALOGUE["defocus_blur"].severities[severity - 1])[:, :, None].astype(float)
    expected = [levels(ndimage.correlate(x / 255, kernel, mode="mirror")) for x in channels_last(IMAGES)]
    assert_same("defocus_blur", severity, expected)


def smeared(image, radius, std, degrees):
    """ImageMagick's motion blur of one image (32, 32, c), in whole grey levels."""
    weights = [math.exp(-i * i / (2 * std * std)) for i in range(2 * radius + 1)]
    total = np.zeros(image.shape)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    for i, weight in enumerate(weights):
        down, right = math.ceil(i * sine - 0.5), math.ceil(i * cosine - 0.5)
        padded = np.pad(image, ((40, 40), (40, 40), (0, 0)), mode="edge")
        total += weight / sum(weights) * padded[40 + down : 72 + down, 40 + right : 72 + right]
    return np.floor(total + 0.5)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur_equals_a_line_of_weights(severity):
    radius, std = CATALOGUE["motion_blur"].severities[severity - 1]
    angles = 90 * torch.rand(len(IMAGES), generator=seeded()) - 45
    expected = [smeared(x, radius, std, angle) for x, angle in zip(channels_last(IMAGES), angles.tolist(), strict=True)]
    assert_same("motion_blur", severity, expected)


def zoomed(image, factor):
    """The middle of an image (32, 32, c), enlarged by scipy and trimmed."""
    crop = math.ceil(32 / factor)
    top = (32 - crop) // 2
    large = ndimage.zoom(image[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
    trim = (len(large) - 32) // 2
    return large[trim : trim + 32, trim : trim + 32]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_zoom_blur_equals_a_mean_of_scipy_zooms(severity):
    (end,) = CATALOGUE["zoom_blur"].severities[severity - 1]
    factors = np.arange(1, end, 0.01)
    expected = []
    for image in channels_last(IMAGES):
        x = (image / 255).astype(np.float32)
        expected.append(levels((x + sum(zoomed(x, factor) for factor in factors)) / (len(factors) + 1)))
    assert_same("zoom_blur", severity, expected)


# Weather


def diamond_square(noise, decay):
    """Clouds point by point: each is the mean of its four periodic neighbours at a distance, plus noise."""
    height, spread, step = np.zeros((32, 32)), 100.0, 32
    corners, sides = [(-1, -1), (-1, 1), (1, -1), (1, 1)], [(-1, 0), (1, 0), (0, -1), (0, 1)]
    while step >= 2:
        half = step // 2
        middles = list(product(range(half, 32, step), repeat=2))
        edges = [(i, j) for i, j in product(range(0, 32, half), repeat=2) if (i + j) % step == half]
        for points, neighbours in ((middles, corners), (edges, sides)):
            for i, j in points:
                mean = sum(height[(i + half * k) % 32, (j + half * l) % 32] for k, l in neighbours) / 4
                height[i, j] = mean + spread * spread * noise[i, j]
        spread, step = spread / decay, half
    return (height - height.min()) / (height.max() - height.min())


@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_equals_clouds_point_by_point(severity):
    strength, decay = CATALOGUE["fog"].severities[severity - 1]
    noise = (2 * torch.rand((len(IMAGES), 32, 32), generator=seeded(), dtype=torch.double) - 1).numpy()
    expected = []
    for image, draws in zip(channels_last(IMAGES), noise, strict=True):
        x, clouds = image / 255, diamond_square(draws, decay)[..., None]
        expected.append(levels((x + strength * clouds) * x.max() / (x.max() + strength)))
    assert_same("fog", severity, expected)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_frost_equals_a_sum_with_pieces_of_overlays(severity):
    share, frost_share = CATALOGUE["frost"].severities[severity - 1]
    generator = seeded()
    which = torch.randint(len(OVERLAYS), (len(IMAGES),), generator=generator).tolist()
    corners = torch.rand((2, len(IMAGES)), generator=generator)
    expected = []
    for image, i, (top, left) in zip(channels_last(IMAGES), which, corners.T, strict=True):
        ice = OVERLAYS[i].permute(1, 2, 0).numpy()
        top, left = int(top * (len(ice) - 32)), int(left * (ice.shape[1] - 32))
        sum_ = share * image + frost_share * ice[top : top + 32, left : left + 32]
        expected.append(np.uint8(np.clip(sum_, 0, 255)))
    assert_same("frost", severity, expected)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_equals_flakes_image_by_image(severity):
    mean, std, zoom, threshold, radius, smear_std, share = CATALOGUE["snow"].severities[severity - 1]
    generator = seeded()
    noise = torch.randn((len(IMAGES), 32, 32), generator=generator, dtype=torch.double).numpy()
    angles = (90 * torch.rand(len(IMAGES), generator=generator) - 135).tolist()
    expected = []
    for image, draws, angle in zip(channels_last(IMAGES), noise, angles, strict=True):
        flakes = zoomed((mean + std * draws)[..., None], zoom)
        flakes[flakes < threshold] = 0
        flakes = smeared(levels(flakes), radius, smear_std, angle) / 255
        x = image / 255
        grey = (x @ [0.299, 0.587, 0.114])[..., None]
        white = share * x + (1 - share) * np.maximum(x, 1.5 * grey + 0.5)
        expected.append(levels(white + flakes + np.rot90(flakes, k=2)))
    assert_same("snow", severity, expected)


def canny(image):
    """Edges of one image of bytes, pixel by pixel: Sobel, the ridge in one of four directions, a flood from strong."""
    image = image.astype(int)
    right = ndimage.correlate1d(ndimage.correlate1d(image, [1, 2, 1], 0, mode="nearest"), [-1, 0, 1], 1, mode="nearest")
    down = ndimage.correlate1d(ndimage.correlate1d(image, [1, 2, 1], 1, mode="nearest"), [-1, 0, 1], 0, mode="nearest")
    size = np.pad(abs(right) + abs(down), 1)
    weak, stack = set(), []
    for i, j in product(range(32), repeat=2):
        x, y, m = right[i, j], down[i, j], size[i + 1, j + 1]
        if m <= 50:
            continue
        angle = math.degrees(math.atan2(abs(y), abs(x)))
        di, dj = (0, 1) if angle < 22.5 else (1, 0) if angle > 67.5 else (1, -1 if (x < 0) != (y < 0) else 1)
        before, behind = size[i + 1 - di, j + 1 - dj], size[i + 1 + di, j + 1 + dj]
        if m > before and (m >= behind if 0 in (di, dj) else m > behind):
            weak.add((i, j))
            if m > 150:
                stack.append((i, j))
    edges = set(stack)
    while stack:
        i, j = stack.pop()
        found = {(i + k, j + l) for k, l in product((-1, 0, 1), repeat=2)} & weak - edges
        edges |= found
        stack += found
    return edges


def chamfer(i, j):
    """The length of the shortest path by steps of 1 straight, 1.4 diagonally and 2.1969 as a knight."""
    large, small = max(abs(i), abs(j)), min(abs(i), abs(j))
    straight, diagonal, knight = 1, 91750 / 65536, 143976 / 65536
    if large >= 2 * small:
        return small * knight + (large - 2 * small) * straight
    return (large - small) * knight + (2 * small - large) * diagonal


def equalised(depth):
    values, counts = np.unique(depth, return_counts=True)
    if len(values) == 1:
        return depth
    ranks = np.round((counts.cumsum() - counts[0]) * np.float32(255 / (1024 - counts[0])))
    return ranks[np.searchsorted(values, depth)]


def water(liquid):
    edges = canny(liquid)
    depth = np.full((32, 32), 20.0)
    for i, j in product(range(32), repeat=2):
        depth[i, j] = min([20.0, *(chamfer(i - k, j - l) for k, l in edges)])
    box = np.full((3, 3), 1 / 9)
    depth = np.trunc(ndimage.correlate(depth, box, mode="mirror").astype(np.float32))
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    relief = np.clip(ndimage.correlate(equalised(depth), emboss, mode="mirror"), 0, 255)
    shine = liquid * np.round(ndimage.correlate(relief.astype(float), box, mode="mirror"))
    return shine / shine.max()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_spatter_equals_drops_pixel_by_pixel(severity):
    mean, std, blur_std, threshold, strength, mud = CATALOGUE["spatter"].severities[severity - 1]
    noise = torch.randn((len(IMAGES), 32, 32), generator=seeded(), dtype=torch.double).numpy()
    expected = []
    for image, draws in zip(channels_last(IMAGES), noise, strict=True):
        liquid = ndimage.gaussian_filter(mean + std * draws, blur_std, mode="nearest", truncate=4)
        liquid[liquid < threshold] = 0
        if mud:
            mask = ndimage.gaussian_filter((liquid > threshold).astype(float), strength, mode="nearest", truncate=4)
            mask = np.where(mask < 0.8, 0, mask)[..., None]
            expected.append(levels((1 - mask) * image / 255 + mask * np.array([63, 42, 20]) / 255))
        else:
            mask = strength * water(np.uint8((liquid * 255).astype(int) % 256))[..., None]
            expected.append(levels(image / 255 + mask * np.array([175, 238, 238]) / 255))
    assert_same("spatter", severity, expected)


# Digital


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_shrinks_towards_each_channels_mean(severity):
    (factor,) = CATALOGUE["contrast"].severities[severity - 1]
    x = channels_last(IMAGES) / 255
    mean = x.mean((1, 2), keepdims=True)
    assert_same("contrast", severity, levels((x - mean) * factor + mean))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_and_saturation_change_in_hsv(severity):
    (added,), (factor, offset) = (CATALOGUE[name].severities[severity - 1] for name in ("brightness", "saturate"))

    def brighter(h, s, v):
        return h, s, min(v + added, 1)

    def richer(h, s, v):
        return h, min(s * factor + offset, 1), v

    for name, change in (("brightness", brighter), ("saturate", richer)):
        pixels = (channels_last(IMAGES) / 255).reshape(-1, 3)
        changed = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in pixels.tolist()]
        assert_same(name, severity, levels(np.array(changed)).reshape(len(IMAGES), 32, 32, 3), fraction=0.03)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_compression_is_close_to_pillow(severity):
    (quality,) = CATALOGUE["jpeg_compression"].severities[severity - 1]
    expected = []
    for image in channels_last(IMAGES):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        expected.append(np.asarray(Image.open(file)))
    difference = differences("jpeg_compression", severity, expected)
    assert difference.mean() < 0.1
    assert (difference <= 2).mean() > 0.98


@pytest.mark.parametrize("severity", SEVERITIES)
def test_pixelate_equals_pillow(severity):
    (factor,) = CATALOGUE["pixelate"].severities[severity - 1]
    small = (int(32 * factor),) * 2
    resized = [Image.fromarray(x).resize(small, Image.BOX).resize((32, 32), Image.BOX) for x in channels_last(IMAGES)]
    assert differences("pixelate", severity, [np.asarray(image) for image in resized]).max() == 0


def warped(image, shifts):
    """An image under the affine map that shifts three corners, read at places rounded as OpenCV rounds them."""
    corners = np.array([[26, 26], [26, 6], [6, 6]])
    forward = np.linalg.solve(np.c_[corners, np.ones(3)], corners + shifts).T  # (2, 3)
    back = np.linalg.inv(np.r_[forward, [[0, 0, 1]]])
    places = np.empty((2, 32, 32))
    for y, x, axis in product(range(32), range(32), range(2)):
        fixed = round(back[axis, 0] * x * 1024) + round((back[axis, 1] * y + back[axis, 2]) * 1024) + 16
        places[1 - axis, y, x] = (fixed >> 5) / 32
    return np.stack(
        [ndimage.map_coordinates(channel, places, order=1, mode="mirror") for channel in image.T.swapaxes(1, 2)], -1
    )


@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_transform_equals_scipy(severity):
    strength, std, shift = CATALOGUE["elastic_transform"].severities[severity - 1]
    generator = seeded()
    shifts = shift * (2 * torch.rand((len(IMAGES), 3, 2), generator=generator, dtype=torch.double) - 1).numpy()
    noise = (2 * torch.rand((2, len(IMAGES), 32, 32), generator=generator, dtype=torch.double) - 1).numpy()
    expected = []
    for i, image in enumerate(channels_last(IMAGES)):
        moved = warped((image / 255).astype(np.float32), shifts[i])
        right, down = (
            strength * ndimage.gaussian_filter(field, std, mode="reflect", truncate=3) for field in noise[:, i]
        )
        rows, columns = np.mgrid[:32, :32]
        places = np.stack([rows + down, columns + right])
        pulled = [ndimage.map_coordinates(moved[..., c], places, order=1, mode="reflect") for c in range(3)]
        expected.append(levels(np.stack(pulled, -1)))
    assert_same("elastic_transform", severity, expected)


# Properties of all corruptions


def test_there_are_19_corruptions_at_5_severities():
    assert len(CORRUPTIONS) == 19
    assert {len(corruption.severities) for corruption in CATALOGUE.values()} == {5}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_equal_seeds_give_equal_images(name):
    images = some_images(3)
    before = images.clone()
    first, second = corrupted(name, 4, images), corrupted(name, 4, images)
    assert torch.equal(first, second)
    assert torch.equal(images, before)
    assert first.dtype == torch.uint8 and first.shape == images.shape


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_noise_is_independent_across_images(name):
    twins = corrupted(name, 3, some_images(1).expand(2, -1, -1, -1))
    assert torch.equal(twins[0], twins[1]) == ("generator" not in CATALOGUE[name].needs)


@pytest.mark.parametrize("name", sorted(MONOTONE))
def test_the_distance_from_the_clean_image_grows_with_severity(name):
    images = some_images(30)
    distances = [(corrupted(name, s, images).double() - images).abs().mean().item() for s in SEVERITIES]
    assert distances == sorted(distances) and distances[0] > 0


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_any_number_of_images_is_accepted(name):
    assert corrupted(name, 2, IMAGES[:0]).shape == (0, 3, 32, 32)
    many = some_images(1).expand(CHUNK + 1, -1, -1, -1)  # more than one chunk
    result = corrupted(name, 2, many)
    assert result.shape == many.shape
    if "generator" not in CATALOGUE[name].needs:
        assert torch.equal(result[0], result[-1])


@pytest.mark.parametrize("level", [0, 255])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_black_and_white_images_stay_images(name, level):
    plain = torch.full((2, 3, 32, 32), level, dtype=torch.uint8)
    unmoved = {
        "gaussian_blur",
        "glass_blur",
        "defocus_blur",
        "motion_blur",
        "zoom_blur",
        "contrast",
        "jpeg_compression",
    }
    unmoved |= {"pixelate", "elastic_transform"}
    if name in unmoved:
        assert (corrupted(name, 5, plain).int() - plain.int()).abs().max() <= 1
    else:
        assert corrupted(name, 5, plain).shape == plain.shape


# Invalid arguments


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(
        ValueError, match=r"must be one of gaussian_noise.*but it is 'gausian_noise'; did you mean 'gaussian_noise'\?"
    ):
        corrupted("gausian_noise", 1)


@pytest.mark.parametrize("severity", [0, 6, -1])
def test_a_severity_must_be_from_1_to_5(severity):
    with pytest.raises(ValueError, match=f"must be 1, 2, 3, 4 or 5, but it is {severity}"):
        corrupted("fog", severity)


def test_images_must_be_bytes():
    with pytest.raises(ValueError, match=r"must be uint8.*but they are torch.float32; convert images in \[0, 1\]"):
        corrupted("fog", 1, IMAGES.float())


@pytest.mark.parametrize("images", [IMAGES.permute(0, 2, 3, 1), IMAGES[0], IMAGES[..., :28]])
def test_images_must_have_the_shape_of_cifar(images):
    with pytest.raises(ValueError, match=r"must have the shape \(N, 3, 32, 32\), but have \(.*permute"):
        corrupted("fog", 1, images)


def test_frost_needs_overlays():
    with pytest.raises(ValueError, match=r"frost must have overlays.*but they are None; pass overlays=frost_overlays"):
        corrupt(IMAGES, "frost", 1, generator=seeded())
    with pytest.raises(ValueError, match=r"sides above 32, but overlay 0 is torch.uint8 of shape \(3, 32, 32\)"):
        corrupt(IMAGES, "frost", 1, generator=seeded(), overlays=[IMAGES[0]])


def test_the_generator_must_be_on_the_device_of_the_images():
    with pytest.raises(ValueError, match="must be on the device of the images, meta, but it is on cpu"):
        corrupted("fog", 1, IMAGES.to("meta"))


# Overlays


def write_overlays(folder):
    (folder / "frost").mkdir()
    for i, name in enumerate(NAMES):
        Image.new("RGB", (204 + i, 233), (10 * i, 20, 30)).save(folder / "frost" / name)


def test_overlays_are_read_at_a_fifth_of_their_size(tmp_path, monkeypatch):
    write_overlays(tmp_path)
    monkeypatch.setenv("DEGP_DATA", str(tmp_path))
    overlays = frost_overlays()
    assert [tuple(overlay.shape) for overlay in overlays] == [(3, 47, 41 + (i == 4)) for i in range(5)]
    assert overlays[2][:, 0, 0].tolist() == [20, 20, 30]
    assert corrupt(IMAGES, "frost", 1, generator=seeded(), overlays=overlays).shape == IMAGES.shape


def test_missing_overlays_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("DEGP_DATA", raising=False)
    with pytest.raises(DataSetError, match="DEGP_DATA is not set; copy them from"):
        frost_overlays()
    write_overlays(tmp_path)
    (tmp_path / "frost" / "frost2.png").unlink()
    monkeypatch.setenv("DEGP_DATA", str(tmp_path))
    with pytest.raises(DataSetError, match=r"but it has no frost2.png; copy them from .* or omit frost"):
        frost_overlays()


def test_overlays_need_pillow(tmp_path, monkeypatch):
    write_overlays(tmp_path)
    monkeypatch.setenv("DEGP_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataSetError, match=r"need Pillow, which is not installed \(pip install 'degp\[data\]'\)"):
        frost_overlays()
