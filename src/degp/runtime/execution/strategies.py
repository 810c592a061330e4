"""What an execution strategy is, and the two plain ones: vmap and a loop."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.func import functional_call, vmap

from degp.points import Inputs

__all__ = ["Execution", "Loop", "Tensors", "Vmap", "call_member", "differentiable_attention", "one_tensor", "unstack"]

Tensors = dict[str, Tensor]


@runtime_checkable
class Execution(Protocol):
    """An execution strategy: evaluates one architecture under M stacked sets of parameters and buffers.

    Buffers (BatchNorm's running statistics) are updated in place, exactly as M separate modules would update theirs.

    Example:
        >>> networks = [mlp(2, [8], 1) for _ in range(3)]
        >>> parameters, buffers = torch.func.stack_module_state(networks)
        >>> strategy: Execution = Loop()
        >>> strategy(networks[0], parameters, buffers, data.inputs).shape
        torch.Size([3, 24, 1])
    """

    @property
    def name(self) -> str: ...

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]: ...


@dataclass(frozen=True)
class Vmap:
    """All members in one batched call (`torch.func.vmap`); dropout draws differ between members."""

    name: str = "vmap"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]:
        def member(own_parameters: Tensors, own_buffers: Tensors) -> tuple[Tensor, Tensors]:
            outputs, state = call_member(module, own_parameters, own_buffers, inputs)
            return outputs, {name: value for name, value in state.items() if value is not own_buffers[name]}

        with differentiable_attention():
            outputs, replaced = vmap(member, randomness="different")(parameters, buffers)
        for name, value in replaced.items():
            buffers[name].copy_(value)
        return outputs


@dataclass(frozen=True)
class Loop:
    """One member after the other: for networks that vmap does not support, and for wide ones, where it does not pay."""

    name: str = "loop"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs
    ) -> Shaped[Tensor, "M ..."]:
        outputs, states = [], []
        for own in unstack(parameters | buffers):
            # clones: to autograd, one member's update of its statistics must not look like an update of another's
            own_buffers = {name: own[name].clone() for name in buffers}
            output, state = call_member(module, {name: own[name] for name in parameters}, own_buffers, inputs)
            outputs.append(output)
            states.append(state)
        for name, buffer in buffers.items():
            buffer.copy_(torch.stack([state[name] for state in states]))
        return torch.stack(outputs)


def one_tensor(outputs: Any) -> Tensor:
    """A member's outputs; TypeError where they are not a single tensor.

    Example:
        >>> one_tensor(mlp(2, [8], 1)(data.inputs)).shape
        torch.Size([24, 1])
    """
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"a network must return one tensor, but it returns a {type(outputs).__name__}; wrap it as "
            f"degp.Unpacked(network, output=…), which picks one by name, or in a module that does"
        )
    return outputs


def call_member(module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs) -> tuple[Tensor, Tensors]:
    """One member's outputs and its buffers afterwards, whether it changed them in place or replaced them."""
    state = parameters | buffers  # one dict: functional_call puts replaced buffers into the dict it was given
    outputs = one_tensor(functional_call(module, state, (inputs,)))
    return outputs, {name: state[name] for name in buffers}


@contextmanager
def differentiable_attention() -> Iterator[None]:
    """No fast path in attention layers: it has no gradient, and under vmap they cannot see that one is needed."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def unstack(tensors: Tensors) -> Iterable[Tensors]:
    """The M sets of tensors in one stacked set."""
    # unbind, not indexing: its backward stacks the members' gradients once instead of adding M padded ones
    columns = {name: stacked.unbind() for name, stacked in tensors.items()}
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
