"""How M members run at once: the same numbers whichever way, at another speed."""

import ctypes
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.func import functional_call, vmap

Tensors = dict[str, Tensor]


@runtime_checkable
class Execution(Protocol):
    """A way to evaluate one architecture under M stacked sets of parameters and buffers.

    Buffers (BatchNorm's running statistics) are updated in place, exactly as M separate modules would update theirs.
    """

    @property
    def name(self) -> str: ...

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Shaped[Tensor, "N ..."]
    ) -> Shaped[Tensor, "M ..."]: ...


@dataclass(frozen=True)
class Vmap:
    """All members in one batched call (`torch.func.vmap`); dropout draws differ between members."""

    name: str = "vmap"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Shaped[Tensor, "N ..."]
    ) -> Shaped[Tensor, "M ..."]:
        def member(own_parameters: Tensors, own_buffers: Tensors) -> tuple[Tensor, Tensors]:
            outputs, state = _call(module, own_parameters, own_buffers, inputs)
            return outputs, {name: value for name, value in state.items() if value is not own_buffers[name]}

        with _differentiable_attention():
            outputs, replaced = vmap(member, randomness="different")(parameters, buffers)
        for name, value in replaced.items():
            buffers[name].copy_(value)
        return outputs


@dataclass(frozen=True)
class Loop:
    """One member after the other: for what vmap cannot do, and for wide networks, where it does not pay."""

    name: str = "loop"

    def __call__(
        self, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Shaped[Tensor, "N ..."]
    ) -> Shaped[Tensor, "M ..."]:
        outputs, states = [], []
        for own in _unstack(parameters | buffers):
            # clones: backward must not take one member's change of its statistics for a change of another's
            own_buffers = {name: own[name].clone() for name in buffers}
            output, state = _call(module, {name: own[name] for name in parameters}, own_buffers, inputs)
            outputs.append(output)
            states.append(state)
        for name, buffer in buffers.items():
            buffer.copy_(torch.stack([state[name] for state in states]))
        return torch.stack(outputs)


def one_tensor(outputs: Any) -> Tensor:
    """A member's outputs as they are; TypeError where a member gives anything but a tensor."""
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"each member must give one tensor (N, C), but it gives a {type(outputs).__name__}; "
            f"wrap it in a module that picks the outputs"
        )
    return outputs


def _call(module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Tensor) -> tuple[Tensor, Tensors]:
    """One member's outputs and its buffers afterwards, whether it changed them in place or put new ones there."""
    state = parameters | buffers  # one dict: functional_call tells of replaced buffers in the dict it was given
    outputs = one_tensor(functional_call(module, state, (inputs,)))
    return outputs, {name: state[name] for name in buffers}


@contextmanager
def _differentiable_attention() -> Iterator[None]:
    """No fast path in attention layers: under vmap they cannot see that a gradient is wanted, and it has none."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _unstack(tensors: Tensors) -> Iterable[Tensors]:
    # unbind, not indexing: its backward stacks the members' gradients once instead of adding M padded ones
    columns = {name: stacked.unbind() for name, stacked in tensors.items()}
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


@dataclass(frozen=True)
class Choice:
    """The way that was taken, and the milliseconds a forward and backward pass took in each way that works."""

    execution: Execution
    milliseconds: Mapping[str, float]

    def __str__(self) -> str:
        times = ", ".join(f"{name} {time:.2f} ms" for name, time in self.milliseconds.items())
        return f"members run by {self.execution.name} ({times})"


def workable(module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Tensor) -> Execution:
    """`Vmap` where the network allows it, else `Loop` with one warning that says why."""
    with torch.no_grad(), kept_randomness(inputs):
        try:
            Vmap()(module, parameters, _copies(buffers), inputs)
            return Vmap()
        except Exception as reason:  # vmap fails in many ways; the loop below tells a limit of vmap from a real fault
            Loop()(module, parameters, _copies(buffers), inputs)
            first_line = str(reason).strip().split("\n")[0]
            warnings.warn(f"members run one after the other, because vmap cannot: {first_line}", stacklevel=4)
            return Loop()


def fastest(
    module: nn.Module,
    parameters: Tensors,
    buffers: Tensors,
    inputs: Tensor,
    *,
    candidates: Iterable[Execution] = (Vmap(), Loop()),
    repeats: int = 5,
    margin: float = 0.05,
) -> Choice:
    """The candidate with the shortest forward and backward pass on these inputs, each timed in turn `repeats` times.

    An earlier candidate is kept unless a later one is faster by `margin`, so that a tie falls the same way every time.
    Nothing is changed: buffers, gradients and the random state are as before.
    """
    ways = list(candidates)
    milliseconds = {way.name: float("inf") for way in ways}
    with kept_randomness(inputs), torch.enable_grad():
        for _ in range(repeats + 1):  # the first round warms up and is overwritten by any later, shorter one
            for way in ways:
                elapsed = _time(partial(_pass, way, module, parameters, buffers, inputs), inputs.device)
                milliseconds[way.name] = min(milliseconds[way.name], elapsed)
    best = ways[0]
    for way in ways[1:]:
        if milliseconds[way.name] < (1 - margin) * milliseconds[best.name]:
            best = way
    return Choice(best, milliseconds)


def _pass(way: Execution, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Tensor) -> None:
    outputs = way(module, parameters, _copies(buffers), inputs)
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    if trained:
        torch.autograd.grad(outputs.sum(), trained, allow_unused=True)


def _time(work: Callable[[], None], device: torch.device) -> float:
    synchronise = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronise()
    start = time.perf_counter()
    work()
    synchronise()
    return 1e3 * (time.perf_counter() - start)


def _copies(buffers: Tensors) -> Tensors:
    return {name: buffer.clone() for name, buffer in buffers.items()}


def kept_randomness(inputs: Tensor) -> AbstractContextManager[None]:
    """A block after which torch's own random state, here and on the inputs' device, is as it was before."""
    return torch.random.fork_rng([inputs.device] if inputs.device.type == "cuda" else [])


@cache
def settle_cpu() -> None:
    """Readies torch's worker threads and the allocator for training on the CPU, once.

    Momentum and weights that decay towards zero become denormal after some hundred steps, and arithmetic with those is
    up to a hundred times slower. Threads inherit from the one that starts them whether denormals count as zero, so the
    workers are started here with that set; `no_denormals` does it for the calling thread while it trains. And glibc
    gives large freed blocks back to the system, so that every step pays for fresh pages: it keeps them from here on.
    """
    with no_denormals():
        torch.ones(2**20).add_(1)  # large enough to be done by all threads
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another allocator than glibc's
    trim_threshold, mmap_threshold = -1, -3
    mallopt(trim_threshold, 2**30)
    mallopt(mmap_threshold, 2**30)


@contextmanager
def no_denormals() -> Iterator[None]:
    """Denormal numbers count as zero in this thread within the block; then as before."""
    before = float(torch.tensor(1e-39) * 1) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
