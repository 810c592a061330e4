"""Checkpoints: atomic, damage is always detected, nothing is pickled, and a failed load changes nothing."""

import ast
import contextlib
import json
import shutil
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given
from torch import nn

import degp
from degp import Checkpoints, Ensemble, Gaussian, fit, methods
from degp.nets import mlp
from degp.training import Plan, TrainState
from degp.training import checkpoints as checkpoints_module
from degp.training.checkpoints import STATE, TENSORS, CheckpointError, OtherRunError, _snapshot
from degp.training.trees import flatten, unflatten
from degp.typing import Batch

DATA = Batch(torch.linspace(-1, 1, 6)[:, None], torch.linspace(-1, 1, 6)[:, None].square())


def new_state(*, width=3, optimizer=torch.optim.Adam, count=0):
    ensemble = Ensemble(lambda: nn.Sequential(mlp(1, [width], width), nn.BatchNorm1d(width), nn.Linear(width, 1)), 2)
    optimizers = [optimizer(ensemble.parameters(), lr=0.01)]
    schedulers = [torch.optim.lr_scheduler.MultiStepLR(optimizers[0], [1, 2])]
    return TrainState(ensemble, methods.de(Gaussian()), optimizers, schedulers, torch.Generator(), count=count)


def train(folder, epochs, **options):
    state = new_state()
    return fit(
        *(state.ensemble, DATA, state.method),
        Plan(epochs=epochs, batch_size=3, checkpoints=Checkpoints(folder, **options)),
        optimizer=state.optimizers,
        scheduler=state.schedulers,
    )


def frozen(tree):
    tensors = {}
    text = json.dumps(flatten(tree, tensors))
    return text, {name: (t.dtype, t.shape, t.flatten().view(torch.uint8).tolist()) for name, t in tensors.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two epochs with checkpoints at steps 2, 4 and at its end."""
    path = tmp_path_factory.mktemp("run")
    train(path, 2, every=2, keep=9)
    return path


@pytest.mark.parametrize(
    "options, steps",
    [
        ({"seconds": 1e-9}, [1, 2, 3, 4]),  # time passes in every step
        ({"seconds": 3600.0}, [4]),
        ({"seconds": 3600.0, "every": 2}, [2, 4]),
    ],
)
def test_checkpoints_are_due_by_time_as_well_as_by_steps(options, steps, tmp_path):
    train(tmp_path, 2, keep=9, **options)
    assert sorted({int(name.split("-")[1]) for name in names(tmp_path)}) == steps


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def assert_rejected(folder, message, state=None):
    state = state or new_state()
    before = frozen(_snapshot(state))
    with pytest.raises(CheckpointError, match=message):
        Checkpoints(folder).start(state, resume=True)
    assert frozen(_snapshot(state)) == before


GOOD = r"the last good one is .*step-00000004-epoch-000001; delete the first to use it"


def assert_damage_detected(folder, name, damage):
    """Checks that the newest checkpoint is rejected while one of its files is changed by `damage`."""
    file = Checkpoints(folder).newest() / name
    intact = file.read_bytes()
    try:
        file.write_bytes(damage(intact))
        assert_rejected(folder, rf"step-00000004-epoch-000002 cannot be used: (.|\n)*; {GOOD}")
    finally:
        file.write_bytes(intact)


def test_the_newest_checkpoint_is_loaded(folder):
    assert names(folder) == ["step-00000002-epoch-000000", "step-00000004-epoch-000001", "step-00000004-epoch-000002"]
    state = new_state()
    Checkpoints(folder).start(state, resume=True)
    assert (state.count, state.epoch, state.position, len(state.history)) == (4, 2, 0, 2)


@given(share=st.floats(0, 1, exclude_max=True), name=st.sampled_from([TENSORS, STATE]))
def test_a_truncated_file_is_detected(folder, share, name):
    assert_damage_detected(
        folder, name, lambda intact: intact[: int(share * (len(intact) - 1))]
    )  # −1: the last byte of JSON is a newline


@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_detected(folder, share, bit):
    def flip(intact):
        place = int(share * len(intact))
        return intact[:place] + bytes([intact[place] ^ (1 << bit)]) + intact[place + 1 :]

    assert_damage_detected(folder, TENSORS, flip)


@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_state_is_detected_or_changes_nothing(folder, share, bit):
    """It may turn 1e-05 into 1E-05."""
    file = Checkpoints(folder).newest() / STATE
    intact = file.read_bytes()
    place, before = int(share * len(intact)), checkpoints_module._read(file.parent)
    try:
        file.write_bytes(intact[:place] + bytes([intact[place] ^ (1 << bit)]) + intact[place + 1 :])
        with contextlib.suppress(CheckpointError):
            assert frozen(checkpoints_module._read(file.parent)) == frozen(before)
    finally:
        file.write_bytes(intact)


@given(share=st.floats(0, 1, exclude_max=True), digit=st.integers(1, 9))
def test_a_changed_number_in_the_state_is_detected(folder, share, digit):
    def change(intact):
        start = intact.index(b'"state"')
        # first digits: the last of a long number can change without changing the number
        places = [i for i in range(start, len(intact)) if intact[i : i + 1].isdigit() and intact[i - 1 : i] in b" -/"]
        place = places[int(share * len(places))]
        return intact[:place] + str((int(intact[place : place + 1]) + digit) % 10).encode() + intact[place + 1 :]

    assert_damage_detected(folder, STATE, change)


@pytest.mark.parametrize("name", [TENSORS, STATE])
def test_a_missing_file_is_detected(folder, tmp_path, name):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (Checkpoints(copy).newest() / name).unlink()
    assert_rejected(copy, rf"it cannot be read \(FileNotFoundError(.|\n)*; {GOOD}")


def test_without_another_checkpoint_the_error_says_so(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    for path in copy.iterdir():
        (path / STATE).write_text("{}")
    assert_rejected(copy, r"it cannot be read \(KeyError: 'schema'\); there is no other one")


def test_a_newer_schema_is_rejected(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    file = Checkpoints(copy).newest() / STATE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 99}))
    assert_rejected(copy, rf"it has schema 99 and this version reads up to 2; update degp; {GOOD}")


def test_a_checkpoint_of_schema_1_is_loaded(tmp_path, monkeypatch):
    """It calls the method an objective, and has neither best weights nor the random state of a GPU."""

    def old_snapshot(state):
        snapshot = _snapshot(state)
        del snapshot["best"], snapshot["device_generator"]
        return snapshot | {"objective": snapshot.pop("method")}

    saved, state = new_state(count=3), new_state()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints_module, "_snapshot", old_snapshot)
        patch.setattr(checkpoints_module, "SCHEMA", 1)
        Checkpoints(tmp_path).save(saved)
    Checkpoints(tmp_path).start(state, resume=True)
    assert frozen(_snapshot(state)) == frozen(_snapshot(saved))


def test_loading_restores_the_whole_state_and_the_global_generator(tmp_path):
    saved, state = new_state(count=3), new_state()
    saved.position, saved.batches, saved.seconds, saved.sums = 2, 5, 1.5, {"loss": 0.25}
    torch.manual_seed(7)
    Checkpoints(tmp_path).save(saved)
    expected = torch.rand(3)
    Checkpoints(tmp_path).start(state, resume=True)
    assert torch.equal(torch.rand(3), expected)
    assert (state.position, state.batches, state.seconds, state.sums) == (2, 5, 1.5, {"loss": 0.25})


def other_groups():
    state = new_state()
    weights = list(state.ensemble.parameters())
    state.optimizers = [torch.optim.Adam([{"params": weights[:1]}, {"params": weights[1:]}])]
    return state


def other_precision():
    state = new_state()
    state.ensemble.double()
    return state


def other_method():
    state = new_state()
    state.method = methods.rms(Gaussian(), state.ensemble)
    return state


OTHERS = {
    "width": (
        lambda: new_state(width=4),
        r"another model: ensemble stacked.0.0.bias is \(2, 3\) torch.float32 and should be \(2, 4\)",
    ),
    "precision": (
        other_precision,
        r"another model: ensemble .* is \(2, 3\) torch.float32 and should be \(2, 3\) torch.float64",
    ),
    "method": (other_method, "method penalty.anchors.* is nothing and should be "),
    "optimiser": (
        lambda: new_state(optimizer=torch.optim.SGD),
        "are Adam, MultiStepLR and this run's SGD, MultiStepLR",
    ),
    "groups": (other_groups, r"groups of \[8\] parameters and this run's of \[1, 7\]"),
}


@pytest.mark.parametrize("make, message", OTHERS.values(), ids=OTHERS.keys())
def test_a_checkpoint_of_another_run_is_rejected(folder, make, message):
    assert_rejected(folder, f"{message}.*; choose another folder", make())


def test_a_run_with_other_facts_is_rejected_and_one_without_facts_accepted(tmp_path):
    known = Checkpoints(tmp_path).of({"seed": 1, "rate": 0.1})
    known.save(new_state())
    known.start(new_state(), resume=True)
    Checkpoints(tmp_path).start(new_state(), resume=True)
    for facts in ({"seed": 2, "rate": 0.1}, {"seed": 1}):
        with pytest.raises(OtherRunError, match=r"of another run, whose .*; choose another folder, or delete"):
            Checkpoints(tmp_path, facts=facts).start(new_state(), resume=True)


def test_discarding_leaves_other_files(tmp_path):
    for name in ("shared", "own"):
        Checkpoints(tmp_path / name).save(new_state())
    (tmp_path / "shared" / "notes").touch()
    for name in ("shared", "own", "never made"):
        Checkpoints(tmp_path / name).discard()
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]
    assert names(tmp_path / "shared") == ["notes"]


def test_a_run_is_never_overwritten(folder):
    before = names(folder)
    with pytest.raises(
        CheckpointError, match=r"holds a run already, up to step-00000004-epoch-000002; pass resume=True"
    ):
        train(folder, 3)
    assert names(folder) == before


def test_resuming_without_a_checkpoint_starts_a_run(tmp_path):
    state = new_state()
    Checkpoints(tmp_path / "new").start(state, resume=True)
    assert state.count == 0 and not (tmp_path / "new").exists()


def test_a_learning_rate_stays_the_same_tensor(tmp_path):
    """A CUDA graph reads the rate from this tensor, and sees a scheduler's changes only there."""
    rate = torch.tensor(0.01)
    state, other = (new_state(optimizer=lambda p, lr, rate=r: torch.optim.SGD(p, rate)) for r in (rate, rate.clone()))
    other.optimizers[0].param_groups[0]["lr"].fill_(0.25)
    Checkpoints(tmp_path).save(other)
    Checkpoints(tmp_path).start(state, resume=True)
    assert state.optimizers[0].param_groups[0]["lr"] is rate
    assert rate == 0.25


@pytest.mark.parametrize("failing", ["write_tensors", "write_json"])
def test_a_failed_save_leaves_only_the_old_checkpoint(tmp_path, monkeypatch, failing):
    old = Checkpoints(tmp_path, keep=1).save(new_state(count=1))

    def full(path, content):
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints_module, failing, full)
    with pytest.raises(OSError, match="No space left on device"):
        Checkpoints(tmp_path, keep=1).save(new_state(count=2))
    assert names(tmp_path) == [old.name]
    Checkpoints(tmp_path).start(new_state(), resume=True)


def test_only_the_newest_are_kept(tmp_path):
    for count in range(1, 6):
        Checkpoints(tmp_path, keep=2).save(new_state(count=count))
    assert names(tmp_path) == ["step-00000004-epoch-000000", "step-00000005-epoch-000000"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"every": 0}, "every counts steps and must be at least 1, but it is 0"),
        ({"seconds": 0.0}, "seconds between checkpoints must be positive, but they are 0.0"),
        ({"keep": 0}, "keep is .* at least 1, but it is 0"),
    ],
)
def test_impossible_settings_are_rejected(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        Checkpoints(tmp_path, **options)


@pytest.mark.parametrize("path", sorted(Path(degp.__file__).parent.rglob("*.py")), ids=lambda path: path.name)
def test_nothing_is_pickled(path):
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not imported & {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    assert not called & {"torch.load", "torch.save", "np.load", "numpy.load"}


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    values = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) * 3
    value = values.to(draw(st.sampled_from(DTYPES)))
    return value.mT if value.ndim > 1 and draw(st.booleans()) else value


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.text(alphabet="ab/1", max_size=3) | st.integers(0, 3) | st.tuples(st.integers(0, 3), st.text(max_size=2))
TREES = st.recursive(
    SCALARS | tensors(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, st.integers(0, 9), max_size=3).map(Counter),
    ),
    max_leaves=12,
)


def described(tree):
    """A tree that `==` can compare, with the bits of every tensor and number."""
    if isinstance(tree, torch.Tensor):
        return "tensor", tree.dtype, tuple(tree.shape), tree.contiguous().flatten().view(torch.uint8).tolist()
    if isinstance(tree, dict):
        return type(tree), [(described(key), described(value)) for key, value in tree.items()]
    if isinstance(tree, (list, tuple)):
        return type(tree), [described(value) for value in tree]
    return type(tree), repr(tree)


@given(tree=TREES)
@example(tree={1: torch.zeros(1), "1": torch.ones(1), "a/b": torch.zeros(2), "a": {"b": torch.ones(2)}})  # equal paths
def test_any_tree_is_restored_from_the_files(tmp_path_factory, tree):
    file = tmp_path_factory.mktemp("tree") / TENSORS
    collected = {}
    text = json.dumps(flatten(tree, collected))
    checkpoints_module.write_tensors(file, collected)
    assert described(unflatten(json.loads(text), checkpoints_module.load_file(file))) == described(tree)


def test_a_value_that_cannot_be_stored_is_reported_with_its_path():
    with pytest.raises(TypeError, match="tensors, numbers and text only, but /a/0 is a object"):
        flatten({"a": [object()]}, {})
