"""Early stopping: the rule by which a validation score ends a run, and the weights of the best epoch."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from degp.training.history import Record

__all__ = ["Best", "EarlyStopping"]


@dataclass(frozen=True)
class EarlyStopping:
    """Stops when a validation score no longer improves, and restores the weights of the best epoch.

    Args:
        metric: a column of the history; smaller is better.
        patience: epochs without progress before stopping.
        min_delta: an improvement smaller than this is no progress, though its weights are kept.

    Example:
        >>> EarlyStopping(patience=10).metric
        'validation/loss'
    """

    metric: str = "validation/loss"
    patience: int = 100
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"patience counts epochs and must be at least 1, but it is {self.patience}")
        if not self.min_delta >= 0:
            raise ValueError(f"min_delta is an improvement and must not be negative, but it is {self.min_delta}")

    def score(self, record: Record) -> float:
        """The metric in an epoch's record."""
        if self.metric not in record:
            known = ", ".join(record)
            raise ValueError(
                f"early stopping needs the metric {self.metric!r}, but an epoch has {known}; pass validation"
            )
        return float(record[self.metric])


@dataclass
class Best:
    """The best validation score so far, the weights that reached it, and how long ago the last real progress was."""

    value: float = torch.inf
    mark: float = torch.inf  # the score at the last progress by more than `EarlyStopping.min_delta`
    stale: int = 0  # epochs since then
    ensemble: dict[str, Tensor] = field(default_factory=dict)
    method: dict[str, Tensor] = field(default_factory=dict)

    def update(self, score: float, rule: EarlyStopping, ensemble: nn.Module, method: nn.Module) -> None:
        """Keeps the weights where the score is the best so far, and counts the epochs since it last made progress."""
        if score < self.value:
            self.value, self.ensemble, self.method = score, _copies(ensemble), _copies(method)
        progressed = score < self.mark - rule.min_delta
        self.mark, self.stale = (score, 0) if progressed else (self.mark, self.stale + 1)

    def restore(self, ensemble: nn.Module, method: nn.Module) -> None:
        """Loads the best weights, if there are any."""
        if self.ensemble:
            ensemble.load_state_dict(self.ensemble)
            method.load_state_dict(self.method)


def _copies(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}
