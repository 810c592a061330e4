"""How a run trains: all settings of `fit` in one frozen record."""

from collections.abc import Callable
from dataclasses import dataclass, field

from degp.training.checkpoints import Checkpoints
from degp.training.history import History
from degp.training.stepping import Eager, Stepping
from degp.training.stopping import EarlyStopping

__all__ = ["FINISH_RATE", "FINISH_STEPS", "Plan"]

FINISH_STEPS, FINISH_RATE = 0.2, 0.3  # of the steps and the learning rate, to end on all rows once some have calibrated


def never(history: History) -> bool:
    """Never stops early."""
    return False


@dataclass(frozen=True)
class Plan:
    """Epochs, batches, stopping, execution and checkpoints of a run.

    Args:
        epochs: passes over the data.
        batch_size: largest batch; an epoch is split evenly. None takes all data at once.
        batches_per_epoch: about; where the data have more, an epoch is that many batches of rows drawn at random, and
            where they have fewer, several passes, so that validation and schedules keep their pace on all sizes.
        early_stopping: ends training by a validation score; needs `validation`.
        stop: called after each epoch with the history; True ends training.
        max_norm: largest norm of each member's gradient; see `clip_gradients`. None does not clip.
        max_seconds: ends training after this time, at the end of a step. A resumed run has this time again.
        stepping: `Eager`, or `Captured` for CUDA graphs; also the place of augmentation and precision.
        checkpoints: where and how often to save; the last state is saved too, and on Ctrl-C.
        resume: continue from the newest checkpoint, if there is one; bit-for-bit equal to an uninterrupted run.

    Example:
        >>> Plan(epochs=100, batch_size=128, max_norm=10.0, early_stopping=EarlyStopping(patience=10)).epochs
        100
    """

    epochs: int
    batch_size: int | None = None
    batches_per_epoch: int | None = None
    early_stopping: EarlyStopping | None = None
    stop: Callable[[History], bool] = never
    max_norm: float | None = None
    max_seconds: float | None = None
    stepping: Stepping = field(default_factory=Eager)
    checkpoints: Checkpoints | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise ValueError(f"epochs must not be negative, but it is {self.epochs}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, but it is {self.batch_size}; None takes all data at once")
        if self.max_norm is not None and not self.max_norm > 0:
            raise ValueError(f"max_norm must be positive, but it is {self.max_norm}; None does not clip gradients")
        if self.max_seconds is not None and not self.max_seconds >= 0:
            raise ValueError(f"max_seconds must not be negative, but it is {self.max_seconds}; None sets no limit")
        if self.batches_per_epoch is not None and self.batches_per_epoch < 1:
            raise ValueError(
                f"batches_per_epoch must be at least 1, but it is {self.batches_per_epoch}; None makes an epoch a pass "
                f"over the data"
            )
