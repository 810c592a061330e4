"""Transforms of a batch's inputs in training, such as augmentation."""

from collections.abc import Callable

import torch

from degp.points import Inputs

__all__ = ["Transform", "identity"]

Transform = Callable[[Inputs, torch.Generator], Inputs]


def identity(inputs: Inputs, generator: torch.Generator) -> Inputs:
    """The inputs unchanged."""
    return inputs
