"""Images under shift: controls have their published losses, AugMix its published operations, names their meaning."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import typer
from torch import nn
from torch.testing import assert_close

from degp import Batch, Categorical, Ensemble, batch_loss
from degp.measurement import BatchPart, MeasurementAlone, UniformBox
from degp.methods import Kind, de
from degp.training import History
from degp.vision import PatchShuffle, Trained, context_images, initialise
from experiments import cifar10
from experiments.data.corruptions import CORRUPTIONS
from experiments.protocols.image_names import label
from experiments.protocols.shift.augmix import MOVES, TONES, AugMix, moved, toned
from experiments.protocols.shift.controls import Exposed, LogitNorm
from experiments.protocols.shift.dropout import AlwaysDropout, passes
from experiments.protocols.shift.runs import run_by_name
from experiments.protocols.shift.sets import in_colour, validation_shifts

B, K, C = 6, 4, 3
CONTEXT = UniformBox(-1.0, 1.0, K)


def problem():
    torch.manual_seed(0)
    ensemble = Ensemble(lambda: nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, C)).double(), 4)
    return ensemble, Batch(torch.randn(B, 2).double(), torch.arange(B) % C, 30)


def seeded():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_outlier_exposure_adds_the_cross_entropy_of_uniform_labels(weight):
    ensemble, batch = problem()
    loss = batch_loss(ensemble, batch, Exposed(CONTEXT, weight)(de(Categorical())), generator=seeded())
    points = CONTEXT(batch.inputs, generator=seeded())
    uniform = torch.full((K, C), 1 / C)
    expected = batch_loss(ensemble, batch, de(Categorical())).total + weight * sum(
        F.cross_entropy(member(points), uniform) for member in ensemble
    )
    assert_close(loss.total, expected)


def test_images_that_are_only_seen_enter_the_statistics_of_batchnorm():
    ensemble = Ensemble(lambda: nn.Sequential(nn.BatchNorm1d(2, momentum=1.0), nn.Linear(2, C)).double(), 3)
    _, batch = problem()
    batch_loss(ensemble, batch, Exposed(CONTEXT, 0.0)(de(Categorical())), generator=seeded())
    seen = torch.cat([batch.inputs, CONTEXT(batch.inputs, generator=seeded())])
    assert_close(ensemble.stacked[0].running_mean, seen.mean(0).expand(3, -1))


def test_logitnorm_trains_on_directions_and_predicts_from_outputs():
    ensemble, batch = problem()
    method, outputs = LogitNorm(0.1)(de(Categorical())), ensemble(batch.inputs)
    directions = outputs / (outputs.norm(dim=-1, keepdim=True) + 1e-7) / 0.1
    expected = sum(F.cross_entropy(own, batch.targets) for own in directions)
    assert_close(batch_loss(ensemble, batch, method).total, expected)
    assert_close(method.predictive(outputs).probabilities, outputs.softmax(-1).mean(0))


def test_logitnorm_sees_a_small_norm_as_uncertainty_but_not_in_training():
    ensemble, batch = problem()
    method, outputs = LogitNorm()(de(Categorical())), ensemble(batch.inputs)
    prepared = method.prepare(batch.inputs)
    losses = [method.loss(scale * outputs, ensemble, batch, prepared).total for scale in (1.0, 0.1)]
    assert_close(losses[0], losses[1], rtol=1e-4, atol=0)
    entropies = [method.predictive(scale * outputs).total for scale in (1.0, 0.1)]
    assert (entropies[1] > entropies[0]).all()


def test_controls_are_for_members_by_themselves():
    functional = run_by_name("degp", "resnet20", 1, 0).recipe
    with pytest.raises(TypeError, match="controls change the loss of members by themselves, but the method is DEGP"):
        Exposed(CONTEXT)(initialise(functional, seed=0)[1])


def random_images(count=8, seed=0):
    """Smooth ones, so that operations have something to do."""
    coarse = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return (40 + 180 * F.interpolate(coarse, (32, 32), mode="bicubic").clamp(0, 1)).to(torch.uint8)


def by_pil(images, operation):
    Image = pytest.importorskip("PIL.Image")
    made = [np.asarray(operation(Image.fromarray(image.permute(1, 2, 0).numpy()))) for image in images]
    return torch.stack([torch.tensor(one).permute(2, 0, 1) for one in made])


@pytest.mark.parametrize("name", TONES)
@pytest.mark.parametrize("level", [0.7, 3.0])
def test_tones_are_those_of_pil(name, level):
    ImageOps = pytest.importorskip("PIL.ImageOps")
    images = random_images()
    operation = {
        "autocontrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
        "posterize": lambda image: ImageOps.posterize(image, 4 - int(level * 4 / 10)),
        "solarize": lambda image: ImageOps.solarize(image, 256 - int(level * 256 / 10)),
    }[name]
    chosen = torch.full((len(images),), TONES.index(name))
    result = toned(images.float(), chosen, torch.full((len(images),), level))
    assert_close(result, by_pil(images, operation).float(), rtol=0, atol=1 if name == "autocontrast" else 0)


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("level", [3.0, -2.2])
def test_moves_are_those_of_pil(name, level):
    Image = pytest.importorskip("PIL.Image")
    images, shear = random_images(), level * 0.03
    pixels = int(level * 32 / 30)
    matrix = {
        "shear_x": (1, shear, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, shear, 1, 0),
        "translate_x": (1, 0, pixels, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, pixels),
    }.get(name)

    def operation(image):
        if matrix is None:
            return image.rotate(int(3 * level), resample=Image.BILINEAR)
        return image.transform((32, 32), Image.AFFINE, matrix, resample=Image.BILINEAR)

    result = moved(images.float(), torch.full((len(images),), MOVES.index(name)), torch.full((len(images),), level))
    inside = (slice(None), slice(None), slice(8, 24), slice(8, 24))  # PIL has its own rule for the border
    assert_close(result[inside], by_pil(images, operation).float()[inside], rtol=0, atol=3)
    assert (result - images).abs()[inside].mean() > 0.5


def test_no_operation_leaves_an_image_as_it_is():
    images = random_images().float()
    none = torch.full((len(images),), len(TONES) + len(MOVES))
    assert torch.equal(toned(images, none, torch.ones(8)), images)
    assert torch.equal(moved(images, none - len(TONES), torch.ones(8)), images)


def mixed_one_by_one(augmix, images, generator):
    """(1 − m) x + m Σᵢ wᵢ chainᵢ(x) image by image, with the draws of `AugMix` in its order."""

    def operation(x, number, level, sign):
        level, sign = level[None], sign[None]
        if number < len(TONES):
            return toned(x[None], number[None], level)[0]
        return moved(x[None], number[None] - len(TONES), sign * level)[0]

    images = augmix.crop(images, generator)
    B, total = len(images), len(TONES) + len(MOVES)
    weights = torch.distributions.Exponential(1.0).icdf(1 - torch.rand(augmix.width, B, generator=generator))
    chains = []
    for _ in range(augmix.width):
        length = torch.randint(1, augmix.depth + 1, (B,), generator=generator)
        chain = list(images.float())
        for position in range(augmix.depth):
            chosen = torch.randint(total, (B,), generator=generator)
            level = 0.1 + (augmix.severity - 0.1) * torch.rand(B, generator=generator)
            sign = 2.0 * torch.randint(2, (B,), generator=generator) - 1
            for n in range(B):
                if position < length[n]:
                    chain[n] = operation(chain[n], chosen[n], level[n], sign[n])
        chains.append(chain)
    share = torch.rand(B, generator=generator)
    for n in range(B):
        w = weights[:, n] / weights[:, n].sum()
        mixture = sum(w[i] * chains[i][n] for i in range(augmix.width))
        yield ((1 - share[n]) * images[n] + share[n] * mixture).round().clamp(0, 255).to(torch.uint8)


def test_augmix_is_the_mixture_of_its_chains():
    images, augmix = random_images(12), AugMix()
    expected = torch.stack(list(mixed_one_by_one(augmix, images, seeded())))
    assert_close(augmix(images, seeded()).float(), expected.float(), rtol=0, atol=1)  # rounded sums


def test_augmix_reads_no_value_and_stays_near_the_image():
    images = random_images(64)
    mixed = AugMix()(images, seeded())
    assert mixed.dtype == torch.uint8 and torch.equal(mixed, AugMix()(images, seeded()))
    assert AugMix()(images.to("meta")).shape == images.shape
    assert not set(TONES + MOVES) & set(CORRUPTIONS)


def test_names_say_what_a_run_is():
    run = run_by_name("degp-a0.003-p8-s5-context-alone-augmix-m7", "resnet20", 24, 3)
    recipe = run.recipe
    assert (recipe.method, recipe.alpha, recipe.members, recipe.epochs, run.seed) == (Kind.DEGP, 0.003, 7, 24, 3)
    assert (recipe.prior.num_draws, recipe.context, recipe.domain) == (5, context_images(32), MeasurementAlone())
    assert recipe.augmentation == AugMix()
    facts = run.facts
    assert (facts["context"], facts["augmentation"]) == ("32 context images alone", "AugMix")
    assert label(facts) == "DE-GP α = 0.003, β = 0.1, prior lite resnet8 S=5, 32 context images alone, AugMix, M = 7"
    exposed = run_by_name("rde-patches-k8-exposed", "resnet20", 1, 0)
    assert exposed.recipe.variant == Exposed(PatchShuffle(8)) and exposed.facts["method"] == "rDE + outlier exposure"
    assert run_by_name("rde", "resnet20", 1, 0).facts["context"] is None
    assert run_by_name("rankone-m16", "resnet20", 1, 0).recipe.light is not None
    assert run_by_name("heads-m16", "resnet20", 1, 0).recipe.backbone is not None


def test_the_chosen_recipe_can_be_changed_by_further_words():
    chosen, changed = (run_by_name(name, "resnet20", 1, 0) for name in ("chosen", "chosen-s2-r16-d64-augmix"))
    assert chosen.facts == run_by_name("degp-a0.003-p8-s5-context", "resnet20", 1, 0).facts
    prior = changed.recipe.prior
    assert (prior.num_draws, prior.resolution, changed.recipe.domain) == (2, 16, BatchPart(64))
    assert changed.facts["prior"] == "lite resnet8 S=2, 16 × 16 pixels, on 64 of the batch"


def test_the_authors_settings_have_a_name():
    recipe = run_by_name("degp-t0.1", "resnet20", 200, 0).recipe
    assert (recipe.alpha, recipe.beta, recipe.temperature, recipe.context) == (0.01, 0.1, 0.1, None)
    assert (recipe.prior.num_draws, recipe.prior.resolution) == (10, None)
    theirs = replace(cifar10.recipe("resnet20", "degp"), temperature=0.1)
    assert recipe.describe() == theirs.describe()


def test_what_is_done_post_hoc_needs_no_other_members():
    plain, laplace = (run_by_name(name, "resnet20", 1, 0) for name in ("rde-m1", "laplace"))
    assert plain.name == laplace.name and plain.facts != laplace.facts
    assert laplace.facts["method"] == "rDE + last-layer Laplace"
    names = {run_by_name(name, "resnet20", 1, 0).name for name in ("rde-m1", "dropout", "sngp", "de-m1")}
    assert len(names) == 4


@pytest.mark.parametrize(
    "name, reason",
    [
        ("knn", "a method must be one of chosen, de, rde"),
        ("degp-big", "words are a0.01"),
        ("degp-alone", "alone needs context images"),
        ("degp-context-exposed", "controls are not for DE-GP"),
        ("rde-context", "context images need exposed or seen"),
        ("rde-context-exposed-alone", "alone is for DE-GP"),
        ("rde-r16", "r is for DE-GP"),
        ("degp-d64-context-alone", "alone leaves the batch out"),
        ("degp-a0.0.1", "words are a0.01"),
    ],
)
def test_names_without_a_meaning_are_refused(name, reason):
    with pytest.raises(typer.BadParameter, match=reason):
        run_by_name(name, "resnet20", 1, 0)


def test_shifts_to_choose_by_change_every_image_and_are_not_reported():
    images = random_images(5)
    shifted = validation_shifts(images)
    assert not shifted.keys() & set(CORRUPTIONS)
    for made in shifted.values():
        assert made.shape == images.shape and made.dtype == torch.uint8
        assert (made != images).flatten(1).any(1).all()
    assert (shifted["occlusion"] == 0).all(1).sum((1, 2)).eq(16 * 16).all()


def test_grey_images_get_three_channels_and_a_border():
    grey = torch.full((2, 1, 28, 28), 7, dtype=torch.uint8)
    colour = in_colour(grey)
    assert colour.shape == (2, 3, 32, 32) and int(colour.sum()) == 2 * 3 * 28 * 28 * 7
    assert in_colour(colour) is colour


def test_passes_with_dropout_are_read_as_members():
    def network():
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 8), AlwaysDropout(0.5), nn.Linear(8, 10))

    recipe = replace(run_by_name("dropout", "resnet20", 1, 0).recipe, make_network=network)
    ensemble, method = initialise(recipe, seed=0)
    trained = Trained(recipe, 0, ensemble, method, History())
    outputs = passes(trained, None).outputs(random_images(4))
    assert outputs.shape == (10, 4, 10) and (outputs.std(0) > 0).any()
    assert torch.equal(passes(trained, None).outputs(random_images(4)), outputs)
