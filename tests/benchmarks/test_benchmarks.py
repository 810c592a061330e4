"""What the benchmarks print and save; their numbers are measured, not tested."""

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import pytest
import torch
import typer
from typer.testing import CliRunner

from benchmarks import __main__ as benchmarks
from benchmarks import convolutions, tiles
from degp.report import load_results
from degp.runtime import execution
from degp.runtime.kernels import chains, narrow

pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(benchmarks.main)


@pytest.fixture
def quick(monkeypatch):
    """Replaces the benchmarks by one that counts its runs."""
    runs = []
    benchmark = SimpleNamespace(run=lambda: runs.append(1) or [{"work": "none", "ms": 0.5}], __doc__="Nothing")
    monkeypatch.setattr(benchmarks, "BENCHMARKS", {"quick": benchmark, "images": benchmark})
    return runs


def test_a_folder_that_cannot_be_written_to_is_rejected_before_any_work(tmp_path, quick):
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["quick", "--out", str(tmp_path / "file" / "below")])
    assert result.exit_code == 2
    message = " ".join(result.output.replace("│", " ").split())
    assert "must be a folder that can be written to, but Not a directory; choose another with --out" in message
    assert not quick


def test_without_a_gpu_benchmarks_that_need_one_are_skipped_with_a_message(tmp_path, quick, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["images", "quick", "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.startswith("images needs a GPU, but torch finds none; skipped\n")
    assert [record["benchmark"] for record in load_results(tmp_path)["records"]] == ["quick"]
    assert len(quick) == 1


@dataclass(frozen=True)
class Tile:
    places: int
    warps: int
    stages: int


IN_USE, WRONG, TOO_LARGE, FASTEST = Tile(64, 2, 2), Tile(32, 8, 2), Tile(128, 8, 4), Tile(64, 1, 2)
MILLISECONDS = {IN_USE: 9.0, FASTEST: 1.0, WRONG: 0.1}  # of a burst; 5 with the others


def with_tiles(plain, table):
    def work(*given):
        if table[16] == TOO_LARGE:
            raise RuntimeError("out of resources")
        return plain(*given) * (1.1 if table[16] == WRONG else 1.01)

    return work


def milliseconds(name):
    return next((time for tile, time in MILLISECONDS.items() if name.startswith(str(tile))), 5.0)


@pytest.fixture
def kernels(monkeypatch):
    """Kernels on a CPU, whose tile in use is the slowest; another is wrong, another too large."""
    ours = ModuleType("degp.runtime.kernels.triton_convolutions")
    ours.FORWARD, ours.GRADIENT, ours.CHAIN = {16: IN_USE}, {16: IN_USE}, {16: IN_USE}
    ours.narrow = with_tiles(narrow.plain, ours.FORWARD)
    ours.kernel_gradient = with_tiles(narrow.plain_gradient, ours.GRADIENT)
    ours.chain = with_tiles(chains.one_by_one, ours.CHAIN)
    monkeypatch.setitem(sys.modules, ours.__name__, ours)
    monkeypatch.setattr(execution, "triton_convolutions", ours, raising=False)
    generator = torch.Generator().manual_seed(0)
    x, dy = torch.randn(2, 2, 8, 8, 16, generator=generator)
    stack = torch.randn(1, 2, 16, 3, 3, 16, generator=generator)
    monkeypatch.setattr(convolutions, "drawn", lambda *sizes: (x, dy, stack))
    monkeypatch.setattr(tiles, "captured", lambda work: None)
    monkeypatch.setattr(tiles, "in_turns", lambda work, rounds: {name: milliseconds(name) for name in work})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return ours


def tile_of(row):
    return Tile(row["pixels"], row["warps"], row["stages"])


def test_the_fastest_correct_tiles_and_the_one_in_use_are_listed(kernels):
    rows = list(tiles._of_stage(2, 16, 32))
    assert len(rows) == 3 * (tiles.SHOWN + 1)
    for shown in (rows[:4], rows[4:8], rows[8:]):
        assert tile_of(shown[0]) == FASTEST
        assert tile_of(shown[-1]) == IN_USE
        assert [row["in use"] for row in shown] == ["", "", "", "yes"]
        assert not {WRONG, TOO_LARGE} & {tile_of(row) for row in shown}
    assert all(("adjoint, µs" in row) == ("forward" in row["kernel"]) for row in rows)
    assert kernels.FORWARD == {16: IN_USE}


def test_a_tile_in_use_that_fails_is_listed_as_failing(kernels):
    kernels.CHAIN[16] = TOO_LARGE
    *_, last = tiles._of_stage(2, 16, 32)
    assert (tile_of(last), last["µs"], last["in use"]) == (TOO_LARGE, "fails", "yes")
