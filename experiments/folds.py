"""Cross-validation folds trained together: on a GPU each fold's step is a CUDA graph on a stream of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from degp import Ensemble, metrics
from degp.data import Standardiser, kfold, subset
from degp.selection import Contest
from degp.training.capture import CapturedStep, adam
from degp.typing import Batch

BATCH = 256


@dataclass(frozen=True)
class Fold:
    """Standardised by the training rows alone; scores are in original units."""

    train: Batch
    test: Batch
    target_scaling: Standardiser
    generator: torch.Generator

    def score(self, predictive: Any) -> dict[str, float]:
        """Of a prediction in standardised units."""
        return self.score_moments(predictive.mean, predictive.total)

    def score_moments(self, mean: Float[Tensor, "N 1"], variance: Float[Tensor, "N 1"]) -> dict[str, float]:
        """RMSE, NLL and coverage of 90 % intervals."""
        m, y = (self.target_scaling.undo(values.double()) for values in (mean, self.test.targets))
        v = self.target_scaling.undo_std(variance.double().sqrt()).square()
        return {
            "rmse": metrics.rmse(m, y),
            "nll": metrics.gaussian_nll(m, v, y),
            "coverage90": metrics.coverage(m, v, y, level=0.9),
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


class FoldRun:
    """Variants of one fold, ready to be stepped."""

    def __init__(self, fold: Fold, data: Batch, ensemble: Ensemble, contest: Contest, learning_rate: float) -> None:
        self.fold, self.data, self.ensemble, self.contest = fold, data, ensemble, contest
        trained = [p for p in (*ensemble.parameters(), *contest.parameters()) if p.requires_grad]
        self.optimizer = adam(trained, learning_rate)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 5, 0.99)
        self.num_batches = max(1, round(len(data) / BATCH))
        self.batch_size = len(data) // self.num_batches
        self.step = self._captured() if data.inputs.device.type == "cuda" else self._eager

    def shuffle(self) -> Tensor:
        """An epoch's batches (steps, B); what is left over, less than a batch's number of rows, sits this one out."""
        order = torch.randperm(len(self.data), generator=self.fold.generator, device=self.data.inputs.device)
        return order[: self.num_batches * self.batch_size].view(self.num_batches, self.batch_size)

    def _captured(self) -> Callable[[Tensor], None]:
        return CapturedStep(
            self.ensemble, self.data, self.contest, [self.optimizer], self.batch_size, generator=self.fold.generator
        )

    def _eager(self, rows: Tensor) -> None:
        loss = self.contest(self.ensemble, self.data[rows], generator=self.fold.generator)
        self.optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        self.optimizer.step()


def train_together(
    runs: list[FoldRun], epochs: int, *, judge_every: int | None = None, patience: int | None = None
) -> None:
    """Steps all folds in turns; judges them now and then, and stops when none has got better for `patience` epochs."""
    for epoch in range(epochs):
        batches = [run.shuffle() for run in runs]
        _wait(runs)
        for step in range(max(len(own) for own in batches)):
            for run, own in zip(runs, batches, strict=True):
                if step < len(own):
                    run.step(own[step])
        _wait(runs)
        for run in runs:
            run.scheduler.step()
        if judge_every and (epoch + 1) % judge_every == 0:
            for run in runs:
                run.contest.judge(run.ensemble)
            if patience and all(int(run.contest.stale) * judge_every >= patience for run in runs):
                break
    for run in runs:
        if not all(bool(p.isfinite().all()) for p in run.ensemble.parameters()):
            raise FloatingPointError("a fold's weights are no longer finite; try a smaller learning rate")


def _wait(runs: list[FoldRun]) -> None:
    if runs[0].data.inputs.device.type == "cuda":
        torch.cuda.synchronize()
