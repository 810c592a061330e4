"""The image sets of the experiments under shift: what is reported, and what choices are made by.

Reported: the test images, their 19 corruptions, and three OOD sets. Chosen by: the validation images, other shifts of
them that are neither corruptions nor context points, and other OOD images (KMNIST in three channels).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor

from degp.typing import Batch, joined
from experiments.data import DataSetError, cifar10, cifar100_part, fashion_mnist, kmnist, svhn
from experiments.protocols.image_sets import ImageSets, hold_out
from experiments.protocols.image_smoke import synthetic_sets

HELD_OUT = 5000
Images = UInt8[Tensor, "N 3 H W"]


@dataclass(frozen=True)
class ShiftSets(ImageSets):
    """`ImageSets` with more out-of-distribution images.

    Attributes:
        others: OOD images to report, by name; `ood` is SVHN.
        ood_validation: OOD images to choose by, by name.
    """

    others: Mapping[str, Images] = field(default_factory=dict)
    ood_validation: Mapping[str, Images] = field(default_factory=dict)

    def to(self, device: torch.device | str) -> "ShiftSets":
        """The same sets on another device."""
        plain = super().to(device)
        others, chosen_by = (
            {name: images.to(device) for name, images in each.items()} for each in (self.others, self.ood_validation)
        )
        return ShiftSets(plain.train, plain.validation, plain.test, plain.ood, others, chosen_by)

    @property
    def all_ood(self) -> dict[str, Images]:
        """All OOD images to report, by name."""
        return ({} if self.ood is None else {"svhn": self.ood.inputs}) | dict(self.others)


def cifar10_sets(smoke: bool, say: Callable[[str], None]) -> ShiftSets:
    """45,000 training and 5,000 validation images, the test set, and every OOD set whose files are there."""
    if smoke:
        small = synthetic_sets()
        noise = torch.randint(256, (40, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
        return ShiftSets(small.train, small.validation, small.test, small.ood, {"noise": noise}, {"kmnist": noise})
    train, validation = hold_out(cifar10("train"), HELD_OUT)
    others = {
        "cifar100": lambda: joined(cifar100_part("train"), cifar100_part("test")),
        "fashion_mnist": lambda: fashion_mnist("test"),
    }
    return ShiftSets(
        train,
        validation,
        cifar10("test"),
        svhn("test"),
        _present(others, say),
        _present({"kmnist": lambda: kmnist("test")}, say),
    )


def _present(sets: Mapping[str, Callable[[], Batch]], say: Callable[[str], None]) -> dict[str, Images]:
    found = {}
    for name, read in sets.items():
        try:
            found[name] = in_colour(read().inputs)
        except DataSetError as reason:
            say(f"{name} is omitted: {reason}")
    return found


def in_colour(images: UInt8[Tensor, "N C H W"], size: int = 32) -> Images:
    """Grey images in three equal channels, with a black border up to `size` pixels; colour images unchanged."""
    if images.shape[1] == 3:
        return images
    border = size - images.shape[-1]
    padded = F.pad(images, [border // 2, border - border // 2] * 2)
    return padded.expand(-1, 3, -1, -1).contiguous()


def validation_shifts(images: Images) -> dict[str, Images]:
    """Shifts of validation images to choose by; none is one of the 19 corruptions or of the context points."""
    N, _, H, W = images.shape
    generator = torch.Generator().manual_seed(0)
    corners = torch.randint(H // 2 + 1, (N, 2), generator=generator).to(images.device)
    down, across = torch.arange(H, device=images.device), torch.arange(W, device=images.device)
    rows, columns = (
        (axis >= corner) & (axis < corner + H // 2)
        for axis, corner in ((down, corners[:, :1]), (across, corners[:, 1:]))
    )
    hidden = rows[:, None, :, None] & columns[:, None, None, :]
    return {
        "occlusion": images.masked_fill(hidden, 0),
        "quarter_turn": images.rot90(1, (2, 3)),
        "stripes": images.masked_fill((down % 4 < 2)[:, None], 0),
        "two_bits": images // 64 * 85,
    }
