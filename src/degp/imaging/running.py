"""How the members of an image ensemble run where they are trained."""

from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from degp.execution import Compiled, Execution, Folded, NotFoldable, Tensors, folded


@dataclass(frozen=True)
class CompiledForTraining:
    """A way compiled in training, where all batches have one shape, and as it is in evaluation.

    There every odd number of images would be compiled anew, which takes longer than looking at them.
    """

    way: Execution

    @property
    def name(self) -> str:
        return f"{self.way.name}, compiled for training"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Shaped[Tensor, "N ..."]
    ) -> Shaped[Tensor, "M ..."]:
        way = Compiled(self.way) if module.training else self.way
        return way(module, parameters, buffers, inputs)


def way_for(network: nn.Module, device: torch.device) -> Execution | None:
    """On a GPU folded and compiled, where the network allows; else None: `fit` measures."""
    if device.type != "cuda":
        return None
    try:
        folded(network)
    except NotFoldable:
        return None
    return CompiledForTraining(Folded())
