"""The history of a training run: one record per epoch, and why it ended."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Ending", "History", "Record"]

Record = dict[str, Any]


class Ending(StrEnum):
    """Why a run ended.

    Example:
        >>> from degp.training import fit
        >>> fit(ensemble, data, method, epochs=2).ending is Ending.COMPLETE
        True
    """

    COMPLETE = "complete"  # all epochs of the plan are done
    CONVERGED = "converged"  # early stopping
    STOPPED = "stopped"  # the plan's `stop`
    TIME = "time"  # the plan's `max_seconds`


@dataclass
class History:
    """Records of epochs, each with `epoch`, `step`, `seconds`, `loss`, the loss's terms and validation results.

    Attributes:
        ending: why the run ended; None while it is under way.
        planned: steps of the whole plan; 0 where a stream does not have its length.

    Example:
        >>> history = History([{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}])
        >>> history.column("loss"), history.last["loss"], len(history)
        ([2.0, 1.0], 1.0, 2)
    """

    records: list[Record] = field(default_factory=list)
    ending: Ending | None = None
    planned: int = 0

    def then(self, other: "History") -> "History":
        """Both runs as one, which was cut off by time if one of them was; epochs, steps and seconds count on."""
        last = {name: self.last.get(name, 0) for name in ("epoch", "step", "seconds")}
        later = [record | {name: start + record[name] for name, start in last.items()} for record in other.records]
        ending = self.ending if self.ending == Ending.TIME else other.ending
        return History([*self.records, *later], ending, self.planned + other.planned)

    def column(self, name: str) -> list[Any]:
        """One quantity over the epochs; None for an epoch that has none."""
        if not any(name in record for record in self.records):
            known = sorted({key for record in self.records for key in record})
            raise KeyError(f"no record has {name!r}; there are {', '.join(known) or 'no records yet'}")
        return [record.get(name) for record in self.records]

    @property
    def last(self) -> Record:
        """The newest record; empty before the first epoch has ended."""
        return self.records[-1] if self.records else {}

    def __len__(self) -> int:
        return len(self.records)
