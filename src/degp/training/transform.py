"""What is done to a batch's inputs before the members see them in training."""

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor

Transform = Callable[[Shaped[Tensor, "B ..."], torch.Generator], Shaped[Tensor, "B ..."]]


def as_they_are(inputs: Shaped[Tensor, "B ..."], generator: torch.Generator) -> Shaped[Tensor, "B ..."]:
    """Nothing."""
    return inputs
