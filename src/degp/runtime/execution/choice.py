"""The one place where an execution strategy is chosen: by rule where the answer is known, else by measurement."""

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from degp.points import Inputs, device_of
from degp.runtime.execution.compiled import Compiled, CompiledForTraining
from degp.runtime.execution.grouped import Grouped, NotGroupable, grouped_program
from degp.runtime.execution.strategies import Execution, Loop, Tensors, Vmap

__all__ = [
    "Choice",
    "candidates_for",
    "fastest",
    "is_groupable",
    "kept_randomness",
    "prior_strategy",
    "strategy_for",
    "workable",
]

REPEATS = 5  # timed passes per strategy, of which the shortest counts
MARGIN = 0.05  # by which a later strategy must be faster


@dataclass(frozen=True)
class Choice:
    """The chosen execution strategy.

    Attributes:
        execution: the strategy.
        milliseconds: per forward and backward pass of each strategy that works, by name; empty if chosen by rule.
        refused: why the other strategies do not work, by name.

    Example:
        >>> choice = ensemble.choose_execution(data.inputs)
        >>> choice.execution, str(choice)
        (Vmap(name='vmap'), 'members run by vmap')
    """

    execution: Execution
    milliseconds: Mapping[str, float]
    refused: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        times = [f"{name} {time:.2f} ms" for name, time in self.milliseconds.items()]
        reasons = [f"not {name}: {reason}" for name, reason in self.refused.items()]
        details = "; ".join(part for part in (", ".join(times), *reasons) if part)
        return f"members run by {self.execution.name}" + (f" ({details})" if details else "")


def strategy_for(module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs) -> Choice:
    """The strategy to train M members with.

    On a GPU convolutional members run grouped, and compiled in training, where the architecture allows it. Elsewhere
    they run by the fastest strategy on these inputs: some machines run convolutions faster one member at a time. Other
    members run by vmap if it supports them, so that seeded runs repeat bit-for-bit, else in a loop.

    Example:
        >>> networks = [mlp(2, [8], 1) for _ in range(3)]
        >>> parameters, buffers = torch.func.stack_module_state(networks)
        >>> print(strategy_for(networks[0], parameters, buffers, data.inputs))
        members run by vmap
    """
    if not _has_convolutions(module):
        return Choice(workable(module, parameters, buffers, inputs), {})
    shares = len(parameters) < len(list(module.parameters()))  # grouped layers need every member's own weights
    if device_of(inputs).type == "cuda" and not shares and is_groupable(module):
        return Choice(CompiledForTraining(Grouped()), {})
    return fastest(module, parameters, buffers, inputs)


def prior_strategy(features: nn.Module, device: torch.device) -> Execution:
    """The strategy for S random feature networks, which need no gradient: grouped where they have convolutions.

    Example:
        >>> cpu = torch.device("cpu")
        >>> prior_strategy(lenet_features(), cpu), prior_strategy(mlp_features(2, [8]), cpu)
        (Grouped(name='grouped'), Vmap(name='vmap'))
    """
    if not _has_convolutions(features) or dict(features.named_buffers()) or not is_groupable(features):
        return Vmap()
    return Compiled(Grouped()) if device.type == "cuda" else Grouped()


def _has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(layer, _ConvNd) for layer in module.modules())


def is_groupable(module: nn.Module) -> bool:
    """Whether members of this architecture have a grouped form.

    Example:
        >>> is_groupable(mlp(2, [8], 1)), is_groupable(nn.Sequential(nn.Embedding(5, 2), nn.Flatten()))
        (True, False)
    """
    try:
        grouped_program(module)
    except NotGroupable:
        return False
    return True


def candidates_for(inputs: Inputs) -> tuple[Execution, ...]:
    """Strategies worth measuring on the inputs' device; compiled ones on a GPU only.

    Example:
        >>> [strategy.name for strategy in candidates_for(data.inputs)]  # on a CPU
        ['vmap', 'loop', 'grouped']
    """
    if device_of(inputs).type == "cuda":
        return Vmap(), Loop(), Grouped(), Compiled(Grouped()), Compiled(Vmap())
    return Vmap(), Loop(), Grouped()


def workable(module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs) -> Execution:
    """`Vmap` where it supports the network, else `Loop` with one warning that says why.

    Example:
        >>> networks = [mlp(2, [8], 1) for _ in range(3)]
        >>> parameters, buffers = torch.func.stack_module_state(networks)
        >>> workable(networks[0], parameters, buffers, data.inputs)
        Vmap(name='vmap')
    """
    with torch.no_grad(), kept_randomness(inputs):
        try:
            Vmap()(module, parameters, _copies(buffers), inputs)
            return Vmap()
        except Exception as reason:  # vmap fails in many ways; a fault of the network itself fails in the loop too
            Loop()(module, parameters, _copies(buffers), inputs)
            first_line = str(reason).strip().split("\n")[0]
            warnings.warn(f"members run one after the other, because vmap cannot: {first_line}", stacklevel=4)
            return Loop()


def fastest(module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs) -> Choice:
    """The candidate with the shortest forward and backward pass on these inputs, each timed in turn several times.

    On a GPU a pass is timed as a CUDA graph where it can be captured, as in training. Candidates that fail, or do not
    fit into memory, are refused. An earlier candidate is kept unless a later one is clearly faster, so that ties always
    fall the same way. Buffers, gradients and the random state stay as they are.

    Example:
        >>> networks = [mlp(2, [8], 1) for _ in range(3)]
        >>> parameters, buffers = torch.func.stack_module_state(networks)
        >>> choice = fastest(networks[0], parameters, buffers, data.inputs)
        >>> sorted(choice.milliseconds), choice.refused
        (['grouped', 'loop', 'vmap'], {})
    """
    passes: dict[str, Callable[[], None]] = {}
    working, refused = [], {}
    with kept_randomness(inputs), torch.enable_grad():
        for strategy in candidates_for(inputs):
            one_pass = partial(_pass, strategy, module, parameters, buffers, inputs)
            try:
                passes[strategy.name] = _warmed_up(one_pass, device_of(inputs))
                working.append(strategy)
            except Exception as error:  # an unsupported network fails in any manner
                refused[strategy.name] = _reason(error)
        if not working:
            raise RuntimeError(
                f"one execution strategy must work, but all fail: {refused}; call one member on these inputs to see why"
            )
        milliseconds = {strategy.name: float("inf") for strategy in working}
        for _ in range(REPEATS):
            for name, work in passes.items():
                milliseconds[name] = min(milliseconds[name], _time(work, device_of(inputs)))
    best = working[0]
    for strategy in working[1:]:
        if milliseconds[strategy.name] < (1 - MARGIN) * milliseconds[best.name]:
            best = strategy
    return Choice(best, milliseconds, refused)


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "it does not fit into memory"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _warmed_up(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The same work after a first run: as a CUDA graph where it can be captured, else as it is."""
    if device.type != "cuda":
        work()
        return work
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            work()
    except RuntimeError:  # it reads a value, or allocates as a graph cannot
        return work
    return graph.replay


def _pass(strategy: Execution, module: nn.Module, parameters: Tensors, buffers: Tensors, inputs: Inputs) -> None:
    outputs = strategy(module, parameters, _copies(buffers), inputs)
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


def kept_randomness(inputs: Inputs) -> AbstractContextManager[None]:
    """A block that leaves torch's own random state, on the CPU and on the inputs' device, unchanged.

    Example:
        >>> before = torch.get_rng_state()
        >>> with kept_randomness(data.inputs):
        ...     noise = torch.randn(3)
        >>> torch.get_rng_state().equal(before)
        True
    """
    return torch.random.fork_rng([device_of(inputs)] if device_of(inputs).type == "cuda" else [])
