"""A way to run members, compiled by `torch.compile`: its element-wise operations fused, forward and backward."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from degp.execution.folded import Folded, folded
from degp.execution.ways import Execution, Tensors

_compiled: "WeakKeyDictionary[nn.Module, dict[str, Callable[..., Tensor]]]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Compiled:
    """Another way, compiled for each shape of inputs when it first meets it; that takes up to a minute."""

    way: Execution

    @property
    def name(self) -> str:
        return f"compiled {self.way.name}"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Shaped[Tensor, "N ..."]
    ) -> Shaped[Tensor, "M ..."]:
        known = _compiled.setdefault(module, {})
        if self.name not in known:
            body = folded(module) if isinstance(self.way, Folded) else partial(self.way, module)
            known[self.name] = torch.compile(body, dynamic=False)
        return known[self.name](parameters, buffers, inputs)


@contextmanager
def compiled_forward(module: nn.Module) -> Iterator[None]:
    """A block in which a module, such as a trunk, runs compiled; it is the same object with the same weights."""
    own = vars(module).get("forward")  # of the instance, as in a block around this one; usually none
    plain = module.forward  # called by a function of ours: torch.compile does not look into an nn.Sequential by itself

    def forward(inputs: Tensor) -> Tensor:
        return plain(inputs)

    module.forward = torch.compile(forward, dynamic=False)
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own
