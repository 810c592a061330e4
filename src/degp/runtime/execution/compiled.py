"""Execution strategies compiled by `torch.compile`: its element-wise operations fused, forward and backward."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from degp.points import Inputs
from degp.runtime.execution.grouped import Grouped, grouped_program
from degp.runtime.execution.strategies import Execution, Tensors

__all__ = ["Compiled", "CompiledForTraining", "compiled_forward"]

_compiled: "WeakKeyDictionary[nn.Module, dict[str, Callable[..., Tensor]]]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Compiled:
    """Another strategy, compiled for each new shape of inputs, which takes up to a minute per shape.

    Example:
        >>> ensemble.execution = Compiled(Grouped())
        >>> ensemble.execution.name
        'compiled grouped'
    """

    strategy: Execution

    @property
    def name(self) -> str:
        return f"compiled {self.strategy.name}"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]:
        known = _compiled.setdefault(module, {})
        if self.name not in known:
            body = grouped_program(module) if isinstance(self.strategy, Grouped) else partial(self.strategy, module)
            known[self.name] = torch.compile(body, dynamic=False)
        return known[self.name](parameters, buffers, inputs)


@dataclass(frozen=True)
class CompiledForTraining:
    """A strategy compiled in training, where all batches have one shape, and plain in evaluation.

    In evaluation every new number of inputs would be compiled again, which takes longer than the evaluation.

    Example:
        >>> ensemble.execution = CompiledForTraining(Grouped())
        >>> ensemble.execution.name
        'grouped, compiled for training'
    """

    strategy: Execution

    @property
    def name(self) -> str:
        return f"{self.strategy.name}, compiled for training"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]:
        strategy = Compiled(self.strategy) if module.training else self.strategy
        return strategy(module, parameters, buffers, inputs)


@contextmanager
def compiled_forward(module: nn.Module) -> Iterator[None]:
    """A block in which a module, such as a backbone, runs compiled: the same object with the same weights.

    Example:
        >>> with compiled_forward(backbone := nn.Linear(2, 1)):  # compiled at its first call
        ...     backbone.weight.shape
        torch.Size([1, 2])
    """
    own = vars(module).get("forward")  # of the instance, as in an enclosing block; usually none
    plain = module.forward  # called by a function of ours: torch.compile does not trace into a bare nn.Sequential

    def forward(inputs: Tensor) -> Tensor:
        return plain(inputs)

    module.forward = torch.compile(forward, dynamic=False)
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own
