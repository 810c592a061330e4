"""When learning-rate schedulers take their steps: after each epoch, after each step, or on a plateau of a score."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from degp.training.history import Record

__all__ = ["EachStep", "after_epoch", "require_own", "split"]


@dataclass(frozen=True)
class EachStep:
    """A scheduler that counts optimiser steps instead of epochs, such as a warm-up or a one-cycle policy.

    Example:
        >>> optimizer = torch.optim.Adam(ensemble.parameters())
        >>> schedule = EachStep(torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=100))
    """

    scheduler: LRScheduler

    def __post_init__(self) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise ValueError(
                "a scheduler that counts steps must not need a score, but ReduceLROnPlateau does, and there is one per "
                "epoch; pass it without EachStep"
            )


def split(schedulers: Sequence[LRScheduler | EachStep]) -> tuple[list[LRScheduler], list[LRScheduler]]:
    """Those that count epochs, and those that count steps."""
    by_epoch = [scheduler for scheduler in schedulers if not isinstance(scheduler, EachStep)]
    return by_epoch, [scheduler.scheduler for scheduler in schedulers if isinstance(scheduler, EachStep)]


def require_own(schedulers: Sequence[LRScheduler], optimizers: Sequence[Optimizer]) -> None:
    """Raises ValueError where a scheduler is that of an optimiser that takes no steps here."""
    for scheduler in schedulers:
        if not any(scheduler.optimizer is optimizer for optimizer in optimizers):
            raise ValueError(
                f"a scheduler must be that of an optimizer of this run, but {type(scheduler).__name__} has another; "
                f"pass the one that it was made with as optimizer=…"
            )


def after_epoch(scheduler: LRScheduler, record: Record) -> None:
    """One step; `ReduceLROnPlateau` sees the validation loss, or the training loss where there is none."""
    if isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step(record["validation/loss" if "validation/loss" in record else "loss"])
    else:
        scheduler.step()
