"""torch's Adam and L-BFGS without its compiler, whose import takes seconds that the first fit of a process would wait.

torch excludes the bookkeeping of every optimiser from compilation by decorators that import `torch._dynamo` when they
first run. These classes have the undecorated methods: the same code, state and names, for eager steps.
"""

import inspect
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["LBFGS", "Adam"]

_adam_step = inspect.unwrap(torch.optim.Adam.step)


class _Undecorated(Optimizer):
    """An optimiser's bookkeeping, as torch wrote it."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class Adam(_Undecorated, torch.optim.Adam):
    """`torch.optim.Adam`, whose step is not differentiable."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step along the gradient."""
        return _adam_step(self, closure)


class LBFGS(_Undecorated, torch.optim.LBFGS):
    """`torch.optim.LBFGS`."""
