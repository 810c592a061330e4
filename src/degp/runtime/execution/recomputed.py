"""Members in a loop with activation checkpointing: recomputed for the gradient, not stored."""

from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from degp.points import Inputs
from degp.runtime.execution.strategies import Tensors, call_member, unstack

__all__ = ["Recomputed"]


@dataclass(frozen=True)
class Recomputed:
    """The loop for members too large to hold at once: memory for one member's activations, a third more time.

    All M outputs exist before the first gradient is needed, so that losses may couple the members; then each member
    runs again for the gradient of its own outputs. Dropout repeats its draws, and BatchNorm's running statistics are
    updated once.

    Example:
        >>> ensemble.execution = Recomputed()
        >>> batch_loss(ensemble, batch, method).total.backward()
    """

    name: str = "recomputed"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]:
        outputs, states = [], []
        for own in unstack(parameters | buffers):
            seen: list[Tensors] = []

            def member(weights: Tensors, start: Tensors, inputs: Inputs, seen: list[Tensors] = seen) -> Tensor:
                # clones: the second pass must start from the same statistics as the first
                copies = {name: value.clone() for name, value in start.items()}
                output, state = call_member(module, weights, copies, inputs)
                seen.append({name: value.detach() for name, value in state.items()})
                return output

            weights, start = ({name: own[name] for name in names} for names in (parameters, buffers))
            outputs.append(checkpoint(member, weights, start, inputs, use_reentrant=False))
            states.append(seen[0])
        for name, buffer in buffers.items():
            buffer.copy_(torch.stack([state[name] for state in states]))
        return torch.stack(outputs)
