"""Ensembles of image networks: one start for all methods, resuming to the bit, and scores that mean what they say."""

import json
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import nn
from torch.testing import assert_close

from degp import objectives
from degp.distributed import ALONE, Group, Mesh
from degp.execution import Vmap
from degp.imaging import (
    CompiledForTraining,
    Cosine,
    Deadline,
    ImageSets,
    Milestones,
    OutOfTime,
    Pooled,
    PriorNetworks,
    Reading,
    Recipe,
    Trunk,
    TwoTemperatures,
    assess,
    by_size,
    class_scores,
    constant_share,
    corruption_table,
    error_curve,
    hold_out,
    is_kept,
    keep,
    load_kept,
    ood_scores,
    readings,
    start,
    train,
    training,
    weight_norm,
)
from degp.imaging.figures import box_panels, line_panels
from degp.likelihoods import Categorical
from degp.nets import mlp
from degp.priors import Centred
from degp.report.figures import save_figure
from degp.selection.calibration import smoothed_nll
from degp.training import Captured, CheckpointError, Checkpoints, Eager
from degp.training.transform import as_they_are
from degp.typing import Batch
from degp.uncertainty import ClassPredictive, entropy

CLASSES = 3
SCALE = ((0.5,) * 3, (0.25,) * 3)
METHODS = ("de", "rde", "rms", "degp")


def features():
    return nn.Sequential(nn.Conv2d(3, 4, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def network():
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 5, 4), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(16, CLASSES)),
    )


def recipe(method="degp", **options):
    settings = {
        "members": 3,
        "epochs": 4,
        "batch_size": 16,
        "warm_up": 1,
        "learning_rate": 0.01,
        "alpha": 0.01,
        "beta": 0.1,
    } | options
    return Recipe(network, PriorNetworks(features, 3), SCALE, method=method, **settings)


def images(number, seed, contrast=30):
    """Brightness tells the class; without contrast there is none."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (number,), generator=generator)
    levels = 90 * torch.rand(number, 3, 32, 32, generator=generator) + contrast * labels.view(-1, 1, 1, 1)
    return Batch(levels.to(torch.uint8), labels)


SETS = ImageSets(images(72, 0), images(30, 1), images(24, 2), images(20, 3, contrast=0))


def trained(method="degp", **options):
    return train(recipe(method, **options), SETS.train, seed=0, execution=Vmap(), progress=False)


@pytest.fixture(scope="module")
def examples():
    return {method: trained(method) for method in METHODS}


def predictive(number, seed):
    generator = torch.Generator().manual_seed(seed)
    draws = torch.softmax(2 * torch.randn(5, number, CLASSES, generator=generator), -1)
    return ClassPredictive.from_draws(draws, entropy)


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def test_rates_rise_and_then_follow_the_schedule():
    warm = recipe(epochs=8, warm_up=2, schedule=Milestones((0.5, 0.75), 0.1))
    assert [warm.rate_factor(e) for e in range(8)] == pytest.approx([0.5, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])
    cold = recipe(epochs=4, warm_up=0, schedule=Cosine())
    assert [cold.rate_factor(e) for e in range(4)] == pytest.approx(
        [(1 + math.cos(math.pi * e / 4)) / 2 for e in range(4)]
    )


def test_unknown_methods_and_single_members_are_refused():
    with pytest.raises(ValueError, match="a method must be one of de, rde, rms, degp, but it is 'map'"):
        recipe("map")
    with pytest.raises(ValueError, match="DE-GP needs at least two members for a covariance, but there is 1"):
        recipe("degp", members=1)


def test_every_method_starts_from_the_same_weights():
    starts = [state(start(recipe(method), seed=5)[0]) for method in METHODS]
    assert all(torch.equal(own[name], starts[0][name]) for own in starts for name in starts[0])
    other = state(start(recipe("de"), seed=6)[0])
    assert not torch.equal(other["stacked.0.weight"], starts[0]["stacked.0.weight"])


def test_anchors_are_apart_from_the_start_and_repeat_with_the_seed():
    (ensemble, one), (_, two) = (start(recipe("rms"), seed=5) for _ in range(2))
    first, second = (dict(objective.named_buffers()) for objective in (one, two))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["penalty.anchors.0.0/weight"], ensemble.stacked[0].weight)


@pytest.mark.parametrize("method", METHODS)
def test_training_lowers_the_loss(examples, method):
    losses = examples[method].history.column("loss")
    assert losses[-1] < losses[0]
    assert math.isfinite(examples[method].history.last["validation/weight_norm"])
    told = examples[method].history.last["validation/temperature"]
    assert told == pytest.approx(examples[method].likelihood.temperature.item())


def test_de_learns_what_can_be_seen():
    assert assess(trained("de", epochs=15), SETS).scores["accuracy"] > 0.8


def test_only_degp_learns_its_temperature(examples):
    assert [float(examples[m].likelihood.temperature.detach()) for m in METHODS[:3]] == [1, 1, 1]
    assert float(examples["degp"].likelihood.temperature.detach()) != pytest.approx(0.1, abs=1e-6)


class OneEpoch(Deadline):
    """A clock on which the time is up after one epoch, however it is asked."""

    def __init__(self, begun):
        self.answers = iter((True, False) if begun else (False,))  # a run that has begun asks before the first epoch

    def allows(self, seconds=0.0):
        return next(self.answers)


@pytest.mark.parametrize("method", ["rms", "degp"])
def test_stopping_and_going_on_is_never_having_stopped(tmp_path, method):
    options = {"seed": 0, "execution": Vmap(), "progress": False, "checkpoints": Checkpoints(tmp_path)}
    for epoch in (1, 2, 3):
        with pytest.raises(OutOfTime, match=f"the time was up after epoch {epoch} of 4"):
            train(recipe(method), SETS.train, deadline=OneEpoch(begun=epoch > 1), **options)
    resumed, whole = train(recipe(method), SETS.train, **options), trained(method)
    for one, other in ((resumed.ensemble, whole.ensemble), (resumed.likelihood, whole.likelihood)):
        assert all(torch.equal(value, state(other)[name]) for name, value in state(one).items())
    assert resumed.history.column("loss") == whole.history.column("loss")


def test_a_run_goes_on_only_by_its_own_recipe_and_from_its_own_seed_and_images(tmp_path):
    options = {"execution": Vmap(), "progress": False, "checkpoints": Checkpoints(tmp_path)}
    with pytest.raises(OutOfTime):
        train(recipe("degp"), SETS.train, seed=0, deadline=OneEpoch(begun=False), **options)
    with pytest.raises(CheckpointError, match=r"whose alpha is .* and this one's 5.0; choose another folder"):
        train(replace(recipe("degp"), alpha=5.0), SETS.train, seed=0, **options)
    with pytest.raises(CheckpointError, match="whose seed is 0 and this one's 1"):
        train(recipe("degp"), SETS.train, seed=1, **options)
    with pytest.raises(CheckpointError, match="whose images is"):
        train(recipe("degp"), SETS.test, seed=0, **options)


def test_a_recipe_has_an_epoch():
    with pytest.raises(ValueError, match="epochs must be at least 1, but it is 0"):
        replace(recipe("de"), epochs=0)


def test_a_deadline_counts_what_is_still_to_be_done():
    assert Deadline().allows(1e9)
    assert Deadline(1.0).allows(30.0)
    assert not Deadline(1.0).allows(90.0)


def test_weight_norms_leave_batchnorm_out(examples):
    ensemble = examples["de"].ensemble
    norms = [
        math.sqrt(sum(float(p.detach().square().sum()) for layer in (net[0], net[5]) for p in layer.parameters()))
        for net in ensemble
    ]
    assert weight_norm(ensemble) == pytest.approx(sum(norms) / len(norms), rel=1e-5)


def test_steps_are_captured_on_one_gpu_and_on_many_are_not(monkeypatch):
    monkeypatch.setattr(training, "_transform", lambda recipe, device: as_they_are)
    many = Group()
    many.size = 2
    gpu = torch.device("cuda")
    one = training._stepping(recipe(), gpu, ALONE)
    with pytest.warns(UserWarning, match="steps are not captured as CUDA graphs"):
        two = training._stepping(recipe(), gpu, Mesh(many))
    assert isinstance(one, Captured) and isinstance(two, Eager)
    assert (one.precision, one.even) == (two.precision, two.even)  # a checkpoint of the one goes on with the other


def test_a_trunk_is_shared_and_has_its_own_rate():
    shared = replace(recipe(), make_network=partial(mlp, 16, (8,), CLASSES), trunk=Trunk(features, 0.0))
    before = state(start(shared, seed=0)[0])
    after = state(train(shared, SETS.train, seed=0, progress=False).ensemble)
    assert torch.equal(after["backbone.0.weight"], before["backbone.0.weight"])
    assert not torch.equal(after["stacked.0.weight"], before["stacked.0.weight"])
    moving = replace(shared, trunk=Trunk(features, 0.01))
    assert not torch.equal(
        state(train(moving, SETS.train, seed=0, progress=False).ensemble)["backbone.0.weight"],
        before["backbone.0.weight"],
    )


def test_a_fixed_prior_repeats_with_the_seed():
    fixed = replace(recipe(), prior=PriorNetworks(features, 3, redrawn=False))
    banks = [dict(start(fixed, seed=2)[1].prior.weights.named_buffers()) for _ in range(2)]
    assert banks[0] and all(torch.equal(banks[0][name], banks[1][name]) for name in banks[0])


@pytest.mark.parametrize("redrawn", [True, False])
def test_a_centred_prior_is_trained_by_and_told_of(redrawn):
    plain = replace(recipe(), prior=PriorNetworks(features, 3, redrawn=redrawn))
    centred = replace(plain, prior=replace(plain.prior, centred=True))
    assert isinstance(start(centred, seed=0)[1].prior, Centred)
    losses = [train(each, SETS.train, seed=0, progress=False).history.column("loss") for each in (plain, centred)]
    assert all(map(math.isfinite, losses[1]))
    assert losses[0] != losses[1]
    assert [each.describe()["prior_centred"] for each in (plain, centred)] == [False, True]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("temperature", [0.02, 1.0, 40.0])
def test_a_fitted_temperature_is_never_worse_where_it_was_fitted(examples, method, temperature):
    example = examples[method]
    outputs, labels = example.outputs(SETS.validation.inputs), SETS.validation.targets
    likelihood = type(example.likelihood)(temperature)
    plain = Reading(example.objective, likelihood)
    fitted = plain.fitted(outputs, labels)
    scores = [smoothed_nll(reading(outputs).probabilities, labels) for reading in (fitted, plain)]
    assert scores[0] <= scores[1]
    assert float(likelihood.temperature.detach()) == pytest.approx(temperature)  # the trained one is left alone


def test_a_pooled_temperature_is_found_again_and_keeps_the_order_of_the_classes():
    p = predictive(5000, 0).probabilities
    labels = torch.multinomial(p, 1, generator=torch.Generator().manual_seed(1)).squeeze(1)  # p is what they come from
    for temperature in (0.5, 1.0, 3.0):
        wrong = Pooled(temperature)(p)
        fitted = Pooled.fitted(wrong, labels)
        assert fitted.temperature == pytest.approx(1 / temperature, rel=0.1)
        assert_close(fitted(wrong), p, atol=0.03, rtol=0)
        assert torch.equal(fitted(wrong).argmax(-1), p.argmax(-1))
    assert_close(Pooled()(p), p)


def test_a_pooled_temperature_keeps_a_doubt_where_all_labels_are_right():
    p = torch.softmax(30 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), -1)
    assert Pooled.fitted(p, p.argmax(-1)).temperature > 1  # no 200 rows prove odds of e³⁰


@pytest.mark.parametrize("method", METHODS)
def test_two_temperatures_are_never_worse_than_one_where_they_were_fitted(examples, method):
    example = examples[method]
    outputs, labels = example.outputs(SETS.validation.inputs), SETS.validation.targets
    plain = Reading(example.objective, example.likelihood)
    one = plain.fitted(outputs, labels)(outputs).probabilities
    two = TwoTemperatures.fitted(plain, outputs, labels)
    assert smoothed_nll(two(outputs), labels) <= smoothed_nll(one, labels)


@pytest.mark.parametrize("spread", [0.0, 0.01])
def test_members_that_agree_have_one_temperature(spread):
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(1, 500, 3, generator=generator, dtype=torch.float64)
    outputs = shared + spread * torch.randn(4, 500, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(shared[0] / 0.3, -1), 1, generator=generator).squeeze(1)
    mixture = Reading(objectives.de(Categorical()), Categorical())
    two = TwoTemperatures.fitted(mixture, outputs, labels)
    assert two.average.temperature == 1  # only τT is known
    assert two.functions.likelihood.temperature.item() == pytest.approx(0.3, rel=0.2)


def test_two_temperatures_are_found_again():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(8, 20_000, 3, generator=generator, dtype=torch.float64) + torch.randn(
        1, 20_000, 3, generator=generator, dtype=torch.float64
    )
    mixture = Reading(objectives.de(Categorical()), Categorical(0.25))
    p = TwoTemperatures(mixture, Pooled(0.5))(outputs)
    labels = torch.multinomial(p, 1, generator=generator).squeeze(1)
    for first in (0.1, 1.0):
        found = TwoTemperatures.fitted(replace(mixture, likelihood=Categorical(first)), outputs, labels)
        assert found.functions.likelihood.temperature.item() == pytest.approx(0.25, rel=0.2)
        assert found.average.temperature == pytest.approx(0.5, rel=0.1)
        assert_close(found(outputs), p, atol=0.05, rtol=0)


def test_outputs_do_not_depend_on_the_batch_size(examples):
    example = examples["degp"]
    assert_close(example.outputs(SETS.test.inputs, batch_size=7), example.outputs(SETS.test.inputs))


def test_assessment_has_all_scores(examples):
    assessment = assess(examples["degp"], SETS)
    scores = assessment.scores
    assert {"nll_unfitted", "ece_unfitted", "member_accuracy", "temperature", "temperature_trained"} < scores.keys()
    plain = Reading(examples["degp"].objective, examples["degp"].likelihood)
    p, labels = plain(examples["degp"].outputs(SETS.test.inputs)).probabilities, SETS.test.targets
    functions = replace(plain, likelihood=Categorical(scores["temperature_functions"]))
    two = TwoTemperatures(functions, Pooled(scores["temperature_average"]))
    calibrated = class_scores(two(examples["degp"].outputs(SETS.test.inputs)), labels)
    assert (scores["nll_calibrated"], scores["ece_calibrated"]) == pytest.approx((calibrated["nll"], calibrated["ece"]))
    assert scores["nll_unfitted"] == pytest.approx(class_scores(p, labels)["nll"])
    fitted = replace(plain, likelihood=Categorical(scores["temperature"]))
    held_out = fitted(examples["degp"].outputs(SETS.validation.inputs)).probabilities
    expected = class_scores(held_out, SETS.validation.targets)
    chosen_by = (scores["accuracy_validation"], scores["nll_validation"])
    assert chosen_by == pytest.approx((expected["accuracy"], expected["nll"]))
    assert scores["temperature_trained"] == pytest.approx(float(examples["degp"].likelihood.temperature.detach()))
    assert assessment.error_curve is not None
    assert assess(examples["degp"], replace(SETS, ood=None)).error_curve is None


def test_the_constant_share_of_a_spread_is_what_was_put_there():
    generator = torch.Generator().manual_seed(0)
    constants, rest = (
        torch.randn(20, *shape, generator=generator, dtype=torch.float64) for shape in ((1, 3), (5000, 3))
    )
    mean = torch.randn(1, 5000, 3, generator=generator, dtype=torch.float64)
    for share in (0.0, 0.3, 1.0):
        parts = (constants / constants.var(0).mean().sqrt(), rest / rest.var(0).mean().sqrt())
        outputs = mean + share**0.5 * parts[0] + (1 - share) ** 0.5 * parts[1]
        assert constant_share(outputs) == pytest.approx(share, abs=0.03)
        assert constant_share(5 * outputs) == pytest.approx(constant_share(outputs))


def test_detection_agrees_with_sklearn_with_foreign_points_positive():
    inside, outside = predictive(60, 0), predictive(50, 1)
    labels = torch.randint(CLASSES, (60,), generator=torch.Generator().manual_seed(2))
    scores = ood_scores(inside, labels, outside)
    foreign = [0] * 60 + [1] * 50
    uncertainties = {
        "mi": torch.cat([inside.epistemic, outside.epistemic]),
        "entropy": torch.cat([inside.total, outside.total]),
        "maxprob": 1 - torch.cat([inside.probabilities, outside.probabilities]).amax(-1),
    }
    for kind, values in uncertainties.items():
        assert scores[f"auroc_{kind}"] == pytest.approx(roc_auc_score(foreign, values))
        assert scores[f"aupr_{kind}"] == pytest.approx(average_precision_score(foreign, values))
        false, true, _ = roc_curve(foreign, values, drop_intermediate=False)
        assert scores[f"fpr95_{kind}"] == pytest.approx(false[(true >= 0.95).argmax()])


def test_error_kept_at_a_threshold_lies_on_the_curve():
    inside, outside = predictive(60, 0), predictive(50, 1)
    labels = torch.randint(CLASSES, (60,), generator=torch.Generator().manual_seed(2))
    scores, curve = ood_scores(inside, labels, outside), error_curve(inside, labels, outside)
    for percent in (5, 10, 20):
        index = int((curve.threshold - percent / 100).abs().argmin())
        assert scores[f"error_mi_{percent}"] == pytest.approx(float(curve.error[index]), nan_ok=True)
    everything = ood_scores(inside, labels, outside, coverages=[1.0])["error_coverage_100"]
    wrong = int((inside.labels != labels).sum()) + 50
    assert everything == pytest.approx(wrong / 110)


@pytest.mark.parametrize("method", ["rde", "degp"])
def test_the_last_of_the_sizes_is_the_whole_ensemble(examples, method):
    rows = by_size(examples[method], SETS)
    assert [row["size"] for row in rows] == [1, 2, 3]
    scores = assess(examples[method], SETS).scores
    assert rows[-1]["nll"] == pytest.approx(scores["nll"])


def test_the_corruption_table_has_a_row_each(examples):
    rows = corruption_table(examples["de"], SETS, types=("contrast", "frost", "fog"), severities=(1, 5))
    assert [(row["corruption"], row["severity"]) for row in rows] == [
        ("none", 0),
        *((name, severity) for name in ("contrast", "fog") for severity in (1, 5)),  # no ice, no frost
    ]
    assert rows == corruption_table(examples["de"], SETS, types=("contrast", "frost", "fog"), severities=(1, 5))
    assert rows[0]["nll"] == pytest.approx(assess(examples["de"], SETS).scores["nll"])


def test_kept_members_say_the_same(examples, tmp_path):
    example = examples["degp"]
    assert not is_kept(tmp_path)
    loaded = load_kept(keep(example, tmp_path), example.recipe, seed=0)
    assert is_kept(tmp_path)
    assert_close(loaded.outputs(SETS.test.inputs), example.outputs(SETS.test.inputs), atol=5e-3, rtol=5e-3)
    assert torch.equal(loaded.likelihood.temperature, example.likelihood.temperature)
    assert loaded.history.records == example.history.records
    with pytest.raises(CheckpointError, match=r"another run, whose members is 3 and this one's 4; give the recipe"):
        load_kept(tmp_path, replace(example.recipe, members=4), seed=0)
    with pytest.raises(CheckpointError, match=r"another run, whose seed is 0 and this one's 1; give the"):
        load_kept(tmp_path, example.recipe, seed=1)


def test_kept_members_without_a_seed_load_under_any(examples, tmp_path):
    path = keep(examples["de"], tmp_path) / "recipe.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "seed"}))
    assert load_kept(tmp_path, examples["de"].recipe, seed=1).seed == 1


@pytest.mark.parametrize(
    "file, advice",
    [
        ("members.safetensors", "train again, or give the recipe"),
        ("history.json", "train again"),
        ("recipe.json", "train"),
    ],
)
def test_kept_members_that_are_damaged_are_refused(examples, tmp_path, file, advice):
    path = keep(examples["de"], tmp_path) / file
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointError, match=advice):
        load_kept(tmp_path, examples["de"].recipe, seed=0)


def test_rows_held_out_are_not_trained_on():
    data = Batch(torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1), torch.arange(20))
    rest, held_out = hold_out(data, 5)
    assert sorted([*rest.targets.tolist(), *held_out.targets.tolist()]) == list(range(20))
    assert (len(held_out), rest.population) == (5, 15)
    with pytest.raises(ValueError, match="rows held out must be some of 20 and leave others, but they are to be 20"):
        hold_out(data, 20)


def test_what_is_compiled_for_training_is_plain_in_evaluation(examples):
    ensemble = examples["de"].ensemble
    plain = ensemble(SETS.test.inputs.float())
    before, ensemble.execution = ensemble.execution, CompiledForTraining(Vmap())
    try:
        assert torch.equal(ensemble.eval()(SETS.test.inputs.float()), plain)
    finally:
        ensemble.execution = before


def test_figures_are_drawn(tmp_path):
    lines = {"panel": {"DE": [([1, 2], [0.3, 0.2]), ([1, 2], [0.4, 0.2])], "DE-GP β = 0": [([1, 2], [0.1, math.nan])]}}
    boxes = {"panel": {"DE": {0: [0.1], 1: [0.2, 0.3]}, "DE-GP α = 1": {0: [0.1], 1: [0.1, 0.2]}}}
    for name, figure in (
        ("lines", line_panels(lines, x_label="members", y_label="error")),
        ("boxes", box_panels(boxes, x_label="severity", y_label="ECE")),
    ):
        assert save_figure(figure, tmp_path / f"{name}.png").stat().st_size > 1000


def test_a_label_has_one_stroke_in_all_panels_and_in_their_legend():
    line = [([1, 2], [0.3, 0.2])]
    panels = {"small": {"DE-GP a": line, "DE-GP b": line}, "large": {"DE-GP b": line}}
    figure = line_panels(panels, x_label="members", y_label="error")
    strokes = {}
    for own in [*(axes.lines for axes in figure.axes), figure.legends[0].get_lines()]:
        for drawn in own:
            if not drawn.get_label().startswith("_"):
                strokes.setdefault(drawn.get_label(), set()).add(drawn.get_linestyle())
    assert {len(found) for found in strokes.values()} == {1}
    assert strokes["DE-GP a"] != strokes["DE-GP b"]


def test_many_forms_of_a_method_look_different():
    line = [([0, 1], [0.0, 1.0])]
    figure = line_panels({"one": {f"DE-GP α = {n}": line for n in range(9)}}, x_label="x", y_label="y")
    named = [line for line in figure.axes[0].get_lines() if not line.get_label().startswith("_")]
    assert len({(str(line.get_color()), line.get_linestyle()) for line in named}) == 9


def test_four_forms_of_a_method_look_different_and_their_long_labels_stay_in_the_picture():
    labels = [f"DE-GP α = 0.01, β = 0.1, prior lite resnet20 S=64 number {number}" for number in range(4)]
    figure = line_panels({"panel": {label: [([1, 2], [0.3, 0.2])] for label in labels}}, x_label="x", y_label="y")
    lines = figure.legends[0].get_lines()
    assert len({drawn.get_color() for drawn in lines}) == len({drawn.get_linestyle() for drawn in lines}) == 4
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1


@pytest.mark.parametrize("progress", [True, False, None])
def test_long_looks_at_images_show_how_far_they_are(examples, monkeypatch, capsys, progress):
    monkeypatch.setattr(training, "BAR_AFTER", 0.0)
    examples["de"].outputs(SETS.test.inputs, batch_size=8, progress=progress)
    assert (f"/{len(SETS.test)} [" in capsys.readouterr().err) == bool(progress)  # the output is no terminal
    corruption_table(examples["de"], SETS, types=("contrast",), severities=(1, 2), progress=progress)
    assert ("/2 [" in capsys.readouterr().err) == bool(progress)


def test_readings_have_the_temperatures_of_the_assessment(examples):
    example, labels = examples["degp"], SETS.test.targets
    read, scores = readings(example, SETS.validation), assess(example, SETS).scores
    outputs = example.outputs(SETS.test.inputs)
    assert read.fitted.likelihood.temperature.item() == pytest.approx(scores["temperature"])
    assert class_scores(read.two(outputs), labels)["nll"] == pytest.approx(scores["nll_calibrated"])
    assert read.scores(outputs, labels).items() <= scores.items()
