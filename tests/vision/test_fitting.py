"""Training by a recipe: it learns, resumes bit-for-bit, and refuses to resume another run."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from degp.nets import mlp
from degp.runtime import progress as progress_module
from degp.runtime.distributed import ALONE, Group, Mesh
from degp.runtime.execution import CompiledForTraining, Vmap
from degp.training import Captured, CheckpointError, Checkpoints, Eager
from degp.training.transform import identity
from degp.vision import Backbone, PriorNetworks, class_scores, fitting, initialise, train, weight_norm
from tests.vision.cases import CLASSES, METHODS, SETS, example, features, recipe, state, trained


@pytest.mark.parametrize("method", METHODS)
def test_training_lowers_the_loss(method):
    losses = example(method).history.column("loss")
    assert losses[-1] < losses[0]
    assert math.isfinite(example(method).history.last["validation/weight_norm"])
    temperature = example(method).history.last["validation/temperature"]
    assert temperature == pytest.approx(example(method).likelihood.temperature.item())


def test_de_learns_visible_classes():
    outputs = trained("de", epochs=15).outputs(SETS.test.inputs)
    assert class_scores(outputs.softmax(-1).mean(0), SETS.test.targets)["accuracy"] > 0.8


def test_only_degp_learns_its_temperature():
    assert [example(method).likelihood.temperature.item() for method in METHODS[:3]] == [1, 1, 1]
    assert example("degp").likelihood.temperature.item() not in (1.0, pytest.approx(0.1, abs=1e-6))


@pytest.mark.parametrize("method", ["rms", "degp"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, method):
    options = {"seed": 0, "execution": Vmap(), "progress": False, "checkpoints": Checkpoints(tmp_path)}
    for epoch in (1, 2, 3):
        stopped = train(recipe(method), SETS.train, stop=lambda history, last=epoch: len(history) >= last, **options)
        assert len(stopped.history) == epoch
    resumed, whole = train(recipe(method), SETS.train, **options), trained(method)
    for one, other in ((resumed.ensemble, whole.ensemble), (resumed.likelihood, whole.likelihood)):
        assert all(torch.equal(value, state(other)[name]) for name, value in state(one).items())
    assert resumed.history.column("loss") == whole.history.column("loss")


def test_a_run_resumes_only_with_its_own_recipe_seed_and_images(tmp_path):
    options = {"execution": Vmap(), "progress": False, "checkpoints": Checkpoints(tmp_path)}
    train(recipe("degp"), SETS.train, seed=0, stop=lambda history: True, **options)
    with pytest.raises(CheckpointError, match=r"whose alpha is .* and this one's 5.0; choose another folder"):
        train(replace(recipe("degp"), alpha=5.0), SETS.train, seed=0, **options)
    with pytest.raises(CheckpointError, match="whose seed is 0 and this one's 1"):
        train(recipe("degp"), SETS.train, seed=1, **options)
    with pytest.raises(CheckpointError, match="whose images is"):
        train(recipe("degp"), SETS.test, seed=0, **options)


def test_weight_norms_leave_batchnorm_out():
    ensemble = example("de").ensemble
    norms = [
        math.sqrt(sum(float(p.detach().square().sum()) for layer in (net[0], net[5]) for p in layer.parameters()))
        for net in ensemble
    ]
    assert weight_norm(ensemble) == pytest.approx(sum(norms) / len(norms), rel=1e-5)


def test_steps_are_captured_unless_there_are_replicas(monkeypatch):
    monkeypatch.setattr(fitting, "_transform", lambda recipe, device: identity)
    many = Group()
    many.size = 2
    gpu = torch.device("cuda")
    one = fitting._stepping(recipe(), gpu, ALONE)
    assert isinstance(fitting._stepping(recipe(), gpu, Mesh(many, members=many)), Captured)
    with pytest.warns(UserWarning, match="CUDA graphs need a single replica"):
        two = fitting._stepping(recipe(), gpu, Mesh(many, many))
    assert isinstance(one, Captured) and isinstance(two, Eager)
    assert (one.precision, one.even) == (two.precision, two.even)  # either resumes from the other's checkpoint


def test_a_backbone_is_shared_and_has_its_own_rate():
    shared = replace(recipe(), make_network=partial(mlp, 16, (8,), CLASSES), backbone=Backbone(features, 0.0))
    before = state(initialise(shared, seed=0)[0])
    after = state(train(shared, SETS.train, seed=0, progress=False).ensemble)
    assert torch.equal(after["backbone.0.weight"], before["backbone.0.weight"])
    assert not torch.equal(after["stacked.0.weight"], before["stacked.0.weight"])
    moving = replace(shared, backbone=Backbone(features, 0.01))
    assert not torch.equal(
        state(train(moving, SETS.train, seed=0, progress=False).ensemble)["backbone.0.weight"],
        before["backbone.0.weight"],
    )


@pytest.mark.parametrize("redrawn", [True, False])
def test_a_centred_prior_changes_training(redrawn):
    plain = replace(recipe(), prior=PriorNetworks(features, 3, redrawn=redrawn))
    centred = replace(plain, prior=replace(plain.prior, centred=True))
    losses = [train(each, SETS.train, seed=0, progress=False).history.column("loss") for each in (plain, centred)]
    assert all(map(math.isfinite, losses[1]))
    assert losses[0] != losses[1]


def test_outputs_do_not_depend_on_the_batch_size():
    assert_close(example().outputs(SETS.test.inputs, batch_size=7), example().outputs(SETS.test.inputs))


def test_a_strategy_compiled_for_training_is_plain_in_evaluation():
    ensemble = example("de").ensemble
    plain = ensemble(SETS.test.inputs.float())
    before, ensemble.execution = ensemble.execution, CompiledForTraining(Vmap())
    try:
        assert torch.equal(ensemble.eval()(SETS.test.inputs.float()), plain)
    finally:
        ensemble.execution = before


@pytest.mark.parametrize("progress", [True, False, None])
def test_long_evaluations_show_progress(monkeypatch, capsys, progress):
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.0)
    example("de").outputs(SETS.test.inputs, batch_size=8, progress=progress)
    shown = f"image {len(SETS.test)} of {len(SETS.test)}: " in capsys.readouterr().err
    assert shown == bool(progress)  # the output is no terminal
