"""Ctrl-C during `degp fit`: the same command resumes, and the result equals an uninterrupted fit."""

import pandas as pd

from degp.sklearn import DEGPRegressor
from degp.tabular import read_table
from degp.tabular.model import predict_rows
from degp.tabular.saving import load_model
from degp.training import loop
from tests.cli.commands import QUICK, assert_rejected, names, run


class Interrupted:
    """A function whose third call is interrupted by Ctrl-C."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return self.function(*arguments)


def test_an_interrupted_fit_is_resumed_bit_for_bit(place, tmp_path, monkeypatch):
    command = ["fit", place / "train.csv", "--target", "price", "--out", tmp_path / "model", *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "validate", Interrupted(loop.validate))
        stopped = run(*command)
    assert stopped.exit_code == 130
    assert "run the same command again" in stopped.stderr
    assert names(tmp_path) == ["model.partial"]
    assert_rejected(run(*command, "--seed", "1"), "random_state is 0", "model.partial")
    again = run(*command)
    assert "Resuming from epoch 2" in again.stdout
    assert names(tmp_path) == ["model"]
    frame = read_table(place / "test.csv")
    whole, resumed = (predict_rows(load_model(f), frame) for f in (place / "numbers", tmp_path / "model"))
    pd.testing.assert_frame_equal(whole, resumed, check_exact=True)


def test_a_fit_interrupted_before_its_first_checkpoint_leaves_nothing(place, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(DEGPRegressor, "fit", interrupt)
    stopped = run("fit", place / "train.csv", "--target", "price", "--out", tmp_path / "model")
    assert stopped.exit_code == 130
    assert not list(tmp_path.iterdir())
