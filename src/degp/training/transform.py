"""Transforms of a batch's inputs in training, such as augmentation."""

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor

__all__ = ["Transform", "identity"]

Transform = Callable[[Shaped[Tensor, "B ..."], torch.Generator], Shaped[Tensor, "B ..."]]


def identity(inputs: Shaped[Tensor, "B ..."], generator: torch.Generator) -> Shaped[Tensor, "B ..."]:
    """The inputs unchanged."""
    return inputs
