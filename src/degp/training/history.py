"""The history of a training run: one record per epoch."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["History", "Record"]

Record = dict[str, Any]


@dataclass
class History:
    """Records of epochs, each with `epoch`, `step`, `seconds`, `loss`, the loss's terms and validation results."""

    records: list[Record] = field(default_factory=list)

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
