"""The data sets of an experiment on images, and validation images held out from training."""

from dataclasses import dataclass

import torch

from degp.data import subset
from degp.typing import Batch


@dataclass(frozen=True)
class ImageSets:
    """Images in uint8 with their labels, all on one device.

    Attributes:
        train: to train on.
        validation: for each method's temperature and for model selection; never trained on.
        test: to score on.
        ood: out-of-distribution images, whose labels are not used; None where there are none.
    """

    train: Batch
    validation: Batch
    test: Batch
    ood: Batch | None = None

    def to(self, device: torch.device | str) -> "ImageSets":
        """The same sets on another device."""
        train, validation, test = (part.to(device=device) for part in (self.train, self.validation, self.test))
        return ImageSets(train, validation, test, None if self.ood is None else self.ood.to(device=device))


def hold_out(data: Batch, count: int, *, seed: int = 0) -> tuple[Batch, Batch]:
    """(the other rows, `count` rows), the same for equal seeds."""
    if not 0 < count < len(data):
        raise ValueError(f"rows held out must be some of {len(data)} and leave others, but they are to be {count}")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).to(data.inputs.device)
    return subset(data, order[count:]), subset(data, order[:count])
