"""Saved members predict as the trained ones, and load only for the recipe and seed of their training."""

import json
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from degp.training import CheckpointError
from degp.vision import has_members, load_members, save_members
from tests.vision.cases import SETS, example


def test_saved_members_predict_as_the_trained_ones(tmp_path):
    trained = example()
    assert not has_members(tmp_path)
    loaded = load_members(save_members(trained, tmp_path), trained.recipe, seed=0)
    assert has_members(tmp_path)
    assert_close(loaded.outputs(SETS.test.inputs), trained.outputs(SETS.test.inputs), atol=5e-3, rtol=5e-3)
    assert torch.equal(loaded.likelihood.temperature, trained.likelihood.temperature)
    assert loaded.history.records == trained.history.records
    with pytest.raises(CheckpointError, match=r"another run, whose members is 3 and this one's 4; pass the recipe"):
        load_members(tmp_path, replace(trained.recipe, members=4), seed=0)
    with pytest.raises(CheckpointError, match=r"another run, whose seed is 0 and this one's 1; pass the"):
        load_members(tmp_path, trained.recipe, seed=1)


def test_members_saved_without_a_seed_load_with_any(tmp_path):
    path = save_members(example("de"), tmp_path) / "recipe.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "seed"}))
    assert load_members(tmp_path, example("de").recipe, seed=1).seed == 1


@pytest.mark.parametrize(
    "file, advice",
    [
        ("members.safetensors", "train again, or pass the recipe"),
        ("history.json", "train again"),
        ("recipe.json", "train"),
    ],
)
def test_damaged_members_are_refused(tmp_path, file, advice):
    path = save_members(example("de"), tmp_path) / file
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointError, match=advice):
        load_members(tmp_path, example("de").recipe, seed=0)


def test_only_weight_arrays_are_rounded(tmp_path):
    trained = example()
    loaded = load_members(save_members(trained, tmp_path), trained.recipe, seed=0)
    before = trained.ensemble.state_dict()
    for name, value in loaded.ensemble.state_dict().items():
        assert torch.equal(value, before[name] if value.ndim <= 2 else before[name].half().float())
