"""Blocks of the guide that need other packages run as printed, where these are installed."""

import re
from pathlib import Path

import pytest
import torch

import degp

GUIDE = Path(__file__).parents[1] / "docs" / "guide"
PAGE = GUIDE / "training_loop.md"
SECTION = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
COLUMNS = {"epoch", "step", "seconds", "loss", "data", "kl", "penalty", "learning_rate"} | {
    f"validation/{name}" for name in ("loss", "data", "kl", "penalty")
}


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(section):
    """The page's first block, then all blocks of a section, also those that other pages' test leaves out."""
    text = PAGE.read_text(encoding="utf-8")
    namespace = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        for code in (blocks(text, "python")[0], *blocks(dict(SECTION.findall(text))[section], "py(?:thon)?")):
            exec(compile(code, str(PAGE), "exec"), namespace)
    return namespace


class Writer:
    """Records what a SummaryWriter would."""

    def __init__(self):
        self.scalars = []

    def add_scalar(self, name, value, step):
        self.scalars.append((name, float(value), step))


def test_records_are_plain_numbers_that_a_writer_takes():
    text = PAGE.read_text(encoding="utf-8")
    namespace, writer = {"__name__": "__main__"}, Writer()
    with torch.random.fork_rng(devices=[]):
        for code in blocks(text, "python")[:2]:
            exec(compile(code, str(PAGE), "exec"), namespace)
        log, records = namespace["to_tensorboard"](writer), []
        options = {"epochs": 2, "validation": namespace["loader"], "progress": False}
        ensemble = degp.Ensemble(namespace["make"], 3)
        degp.fit(ensemble, namespace["loader"], namespace["method"], callback=[log, records.append], **options)
    assert all(type(value) in (int, float) for record in records for value in record.values())
    assert {name for name, _, _ in writer.scalars} == COLUMNS
    assert [value for name, value, _ in writer.scalars if name == "loss"] == [record["loss"] for record in records]
    assert {step for _, _, step in writer.scalars} == {1, 2}


def test_tensorboard_has_every_column(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    run("TensorBoard")
    events = EventAccumulator(str(tmp_path / "runs" / "degp")).Reload()
    assert set(events.Tags()["scalars"]) == COLUMNS
    assert [event.step for event in events.Scalars("validation/loss")] == [1, 2, 3]


def test_weights_and_biases_logs_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    run("Weights & Biases")
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    logged = file.read_bytes()
    assert all(name.encode() in logged for name in COLUMNS)


@pytest.mark.filterwarnings("ignore")  # of Lightning: a few workers, no validation
def test_lightning_trains_the_ensemble(tmp_path, monkeypatch):
    pytest.importorskip("pytorch_lightning")
    monkeypatch.chdir(tmp_path)
    names = run("Lightning")
    assert names["trainer"].global_step == 3 * 4
    assert names["prediction"].std.shape == (64, 1)
    torch.manual_seed(0)
    untrained = degp.predict(degp.Ensemble(names["make"], 5), names["x"], names["method"])
    error, before = (float((each.mean - names["y"]).square().mean()) for each in (names["prediction"], untrained))
    assert error < before


@pytest.mark.filterwarnings("ignore")  # of laplace-torch, on its link approximation
def test_the_lines_of_laplace_torch_run_on_the_network_of_the_page():
    pytest.importorskip("laplace")
    text = (GUIDE / "pretrained.md").read_text(encoding="utf-8")
    (lines,) = [code for code in blocks(text, "py") if "laplace" in code]
    namespace = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        for code in (blocks(text, "python")[0], lines):
            exec(compile(code, "pretrained.md", "exec"), namespace)
    la = namespace["la"]
    assert namespace["probabilities"].shape == la.predictive_samples(namespace["images"]).mean(0).shape == (96, 3)
    assert float(la.log_marginal_likelihood().detach()) < 0 and la.state_dict()
