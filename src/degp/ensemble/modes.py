"""Networks that run without being changed: frozen ones, evaluation mode for a while, buffers put back."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["evaluation", "is_frozen", "kept_buffers", "with_gradients"]


def is_frozen(module: nn.Module) -> bool:
    """Whether a module has parameters, and none of them trains."""
    parameters = list(module.parameters())
    return len(parameters) > 0 and not any(parameter.requires_grad for parameter in parameters)


@contextmanager
def evaluation(module: nn.Module) -> Iterator[None]:
    """A block in which a module is in evaluation mode; each of its parts has its own mode again afterwards."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def kept_buffers(modules: Sequence[nn.Module]) -> Iterator[None]:
    """A block after which all buffers are as before."""
    homes = [part._buffers for module in modules for part in module.modules()]
    before = [dict(home) for home in homes]
    for home, copies in zip(homes, copy.deepcopy(before), strict=True):
        home.update(copies)  # swapped, not copied back: backward may need the values that were used
    try:
        yield
    finally:
        for home, originals in zip(homes, before, strict=True):
            home.update(originals)


@contextmanager
def with_gradients() -> Iterator[None]:
    """A block that records gradients, also where it is called in `torch.no_grad` or `torch.inference_mode`."""
    with torch.inference_mode(False), torch.enable_grad():
        yield
