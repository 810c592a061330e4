"""Cross-validation folds: standardised data, and many small runs trained together on one device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from degp import Ensemble, metrics
from degp.calibration import calibrated_nll
from degp.data import Standardiser, kfold, subset
from degp.methods import Method
from degp.prediction import evaluate
from degp.training import TrainState, adam
from degp.training.graphs import CapturedStep
from degp.training.step import require_finite, train_step
from degp.typing import Batch

BATCH = 256
Scores = dict[str, float]


@dataclass(frozen=True)
class Fold:
    """Standardised by the training rows alone; scores are in original units."""

    train: Batch
    test: Batch
    target_scaling: Standardiser
    generator: torch.Generator

    def score(self, predictive: Any) -> Scores:
        """Of a predictive distribution in standardised units."""
        return self.score_moments(predictive.mean, predictive.total)

    def score_moments(self, mean: Float[Tensor, "N 1"], variance: Float[Tensor, "N 1"]) -> Scores:
        """Of moments in standardised units."""
        m, y = (self.target_scaling.undo(values.double()) for values in (mean, self.test.targets))
        v = self.target_scaling.undo_std(variance.double().sqrt()).square()
        return moment_scores(m, v, y)


def moment_scores(mean: Float[Tensor, "N 1"], variance: Float[Tensor, "N 1"], y: Float[Tensor, "N 1"]) -> Scores:
    """RMSE, NLL and coverage of 90 % intervals."""
    return {
        "rmse": metrics.rmse(mean, y),
        "nll": metrics.gaussian_nll(mean, variance, y),
        "coverage90": metrics.coverage(mean, variance, y, level=0.9),
    }


def standardised_folds(data: Batch, folds: int, seed: int, device: str) -> list[Fold]:
    """All folds of a table, on the device."""
    splits = kfold(len(data), folds, seed=seed)
    return [_fold(data, train, test, seed + 1000 * k, device) for k, (train, test) in enumerate(splits)]


def _fold(data: Batch, train: Tensor, test: Tensor, seed: int, device: str) -> Fold:
    inputs = Standardiser.fit(data.inputs[train])
    targets = Standardiser.fit(data.targets[train])

    def rows(chosen: Tensor) -> Batch:
        own = subset(data, chosen)
        x, y = inputs.apply(own.inputs.double()), targets.apply(own.targets.double())
        return Batch(x.float(), y.float()).to(device=device)

    return Fold(rows(train), rows(test), targets, torch.Generator(device).manual_seed(seed))


class Run:
    """One method on one fold, stepped together with others: on a GPU its step is a CUDA graph on its own stream.

    Args:
        fold: where the test rows are.
        data: the rows to train on.
        validation: rows to choose α by.
        seed: of the order of the data and of the method's draws.
    """

    def __init__(
        self,
        fold: Fold,
        data: Batch,
        ensemble: Ensemble,
        method: Method,
        *,
        learning_rate: float,
        seed: int,
        validation: Batch | None = None,
    ) -> None:
        self.fold, self.data, self.validation = fold, data, validation
        trained = [p for p in (*ensemble.parameters(), *method.parameters()) if p.requires_grad]
        generator = torch.Generator(data.inputs.device).manual_seed(seed)
        self.state = TrainState(ensemble, method, [adam(trained, learning_rate)], [], generator)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.state.optimizers[0], 5, 0.99)
        self.num_batches = max(1, round(len(data) / BATCH))
        self.batch_size = len(data) // self.num_batches
        on_gpu = data.inputs.device.type == "cuda"
        self.step: Callable[[Tensor], Any] = CapturedStep(self.state, data, self.batch_size) if on_gpu else self._eager

    @property
    def ensemble(self) -> Ensemble:
        return self.state.ensemble

    @property
    def method(self) -> Method:
        return self.state.method

    def shuffle(self) -> Tensor:
        """An epoch's batches (steps, B); the remainder, fewer rows than there are batches, is left out."""
        generator = self.state.generator
        order = torch.randperm(len(self.data), generator=generator, device=self.data.inputs.device)
        return order[: self.num_batches * self.batch_size].view(self.num_batches, self.batch_size)

    def nll(self) -> Float[Tensor, "N"]:
        """The validation NLL per row, as after calibration."""
        assert self.validation is not None
        outputs = evaluate(self.ensemble, self.validation.inputs)
        return calibrated_nll(self.method.predictive(outputs), self.validation.targets)

    def _eager(self, rows: Tensor) -> None:
        batch, draws = self.data[rows], self.state.generator
        prepared = self.method.prepare(batch.inputs, generator=draws)
        train_step(self.state, batch, prepared, generator=draws, inspect=require_finite)


def train_together(runs: Sequence[Run], epochs: int) -> None:
    """Steps all runs in turn."""
    for _ in range(epochs):
        batches = [run.shuffle() for run in runs]
        _wait(runs)
        for step in range(max(len(own) for own in batches)):
            for run, own in zip(runs, batches, strict=True):
                if step < len(own):
                    run.step(own[step])
        _wait(runs)
        for run in runs:
            run.scheduler.step()
    for run in runs:
        if not all(bool(p.isfinite().all()) for p in run.ensemble.parameters()):
            raise FloatingPointError("the weights of a run are no longer finite; try a smaller learning rate")


def _wait(runs: Sequence[Run]) -> None:
    if runs[0].data.inputs.device.type == "cuda":
        torch.cuda.synchronize()
