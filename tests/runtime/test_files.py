"""On a full or read-only disk old files stay, no partial files remain, and the error names the reason."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from degp import Checkpoints, Ensemble, Gaussian, methods
from degp.cli import app
from degp.nets import mlp
from degp.runtime.files import new_file, new_folder, write_json
from degp.tabular.saving import load_model
from degp.training import TrainState

resource = pytest.importorskip("resource")  # which Windows does not have
SIZES = [0, 1, 64, 500, 1500]  # bytes; each file written below is longer


@contextmanager
def disk_of(size):
    """The operating system lets no file grow beyond this many bytes: writing fails midway, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def read_only(folder, monkeypatch):
    """A folder in which nothing can be created; for root, who may write anywhere, this is simulated."""

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied", str(folder))

    with monkeypatch.context() as patch:
        if os.geteuid() == 0:
            for name in ("mkstemp", "mkdtemp"):
                patch.setattr(tempfile, name, refuse)
            patch.setattr(Path, "mkdir", refuse)
        folder.chmod(0o500)
        yield
        folder.chmod(0o700)


def state(count):
    ensemble = Ensemble(lambda: mlp(1, [16], 1), 3)
    adam = torch.optim.Adam(ensemble.parameters())
    return TrainState(ensemble, methods.de(Gaussian()), [adam], [], torch.Generator(), count=count)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("size", SIZES)
def test_a_file_is_unchanged_if_the_disk_is_full(tmp_path, size):
    write_json(tmp_path / "file.json", {"old": True})
    before = contents(tmp_path)
    with disk_of(size), pytest.raises(OSError, match="File too large"):
        write_json(tmp_path / "file.json", {"new": "x" * 2000})
    assert contents(tmp_path) == before


@pytest.mark.parametrize("size", SIZES)
def test_a_checkpoint_is_unchanged_if_the_disk_is_full(tmp_path, size):
    Checkpoints(tmp_path).save(state(1))
    before = contents(tmp_path)
    with disk_of(size), pytest.raises(OSError, match="File too large"):
        Checkpoints(tmp_path).save(state(2))
    assert contents(tmp_path) == before
    resumed = state(0)
    Checkpoints(tmp_path).start(resumed, resume=True)
    assert resumed.count == 1


def test_a_read_only_folder_is_unchanged(tmp_path, monkeypatch):
    Checkpoints(tmp_path).save(state(1))
    before = contents(tmp_path)
    with read_only(tmp_path, monkeypatch):
        with pytest.raises(PermissionError):
            Checkpoints(tmp_path).save(state(2))
        with pytest.raises(PermissionError), new_file(tmp_path / "file"):
            pass
    assert contents(tmp_path) == before


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table and a model of it."""
    folder = tmp_path_factory.mktemp("place")
    table = np.random.default_rng(0).normal(size=(40, 3))
    pd.DataFrame(table, columns=["a", "b", "y"]).to_csv(folder / "table.csv", index=False)
    assert degp("fit", folder, "--out", str(folder / "model"), *QUICK).exit_code == 0
    return folder


QUICK = ("--target", "y", "--members", "2", "--hidden", "4", "--steps", "2")


def degp(command, folder, *options):
    first = [str(folder / "model")] if command == "predict" else []
    return CliRunner().invoke(app, [command, *first, str(folder / "table.csv"), *options])


def assert_reported(result, word):
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ") and word in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_the_command_line_reports_a_full_disk(place, command):
    before = contents(place)
    out = place / "model" if command == "fit" else place / "predictions.csv"
    options = (*QUICK, "--seed", "1") if command == "fit" else ()
    with disk_of(600):  # enough for the files written before training
        result = degp(command, place, "--out", str(out), *options)
    assert_reported(result, "File too large")
    kept = {path: content for path, content in contents(place).items() if "partial" not in str(path)}
    assert kept == before
    assert load_model(place / "model").metadata["parameters"]["random_state"] == 0


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_the_command_line_reports_a_read_only_folder(place, command, monkeypatch):
    locked = place / f"locked-{command}"
    locked.mkdir()
    with read_only(locked, monkeypatch):
        result = degp(command, place, "--out", str(locked / "out.csv"), *(QUICK if command == "fit" else ()))
    assert_reported(result, "Permission denied")
    assert not list(locked.iterdir())


def test_files_and_folders_have_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "file.json", {})
        with new_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file.json", "folder")]
    assert modes == [0o640, 0o750]
