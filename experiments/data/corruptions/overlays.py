"""The overlays of frost, read from a local copy of the data."""

from types import ModuleType

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from experiments.data.registry import LOCAL_COPY, local_copy
from experiments.data.sources import DataSetError

__all__ = ["NAMES", "frost_overlays", "shrunk"]

NAMES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
ADVICE = (
    "copy them from https://github.com/hendrycks/robustness (ImageNet-C/create_c) to "
    f"<folder>/frost and set {LOCAL_COPY}=<folder>, or omit frost and report that"
)


def frost_overlays() -> tuple[UInt8[Tensor, "3 _ _"], ...]:
    """The benchmark's five overlays at a fifth of their size, from `$DEGP_DATA/frost`.

    Raises DataSetError if they are missing; the other 18 corruptions do not need them.
    """
    root = local_copy()
    if root is None:
        raise DataSetError(f"the overlays of frost must be in a local copy, but {LOCAL_COPY} is not set; {ADVICE}")
    missing = [name for name in NAMES if not (root / "frost" / name).is_file()]
    if missing:
        raise DataSetError(
            f"{root / 'frost'} must have the overlays {', '.join(NAMES)}, but it has no {' and no '.join(missing)}; "
            f"{ADVICE}"
        )
    image = _import_pillow()
    return tuple(shrunk(np.array(image.open(root / "frost" / name).convert("RGB"))) for name in NAMES)


def shrunk(picture: UInt8[np.ndarray, "H W 3"]) -> UInt8[Tensor, "3 h w"]:
    """A picture at a fifth of its size, channels first.

    OpenCV's linear interpolation at a fifth samples the centre of each 5 × 5 block exactly.
    """
    return torch.from_numpy(picture[2::5, 2::5].transpose(2, 0, 1).copy())


def _import_pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataSetError("overlays need Pillow, which is not installed (pip install 'degp[data]')") from error
    return Image
