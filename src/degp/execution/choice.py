"""Which way to run the members: one that works, or the fastest of those that do, by measurement."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from degp.execution.compiled import Compiled
from degp.execution.folded import Folded
from degp.execution.ways import Execution, Loop, Tensors, Vmap


@dataclass(frozen=True)
class Choice:
    """The way that was taken, and the milliseconds a forward and backward pass took in each way that works.

    Attributes:
        refused: why the other ways are out, by name.
    """

    execution: Execution
    milliseconds: Mapping[str, float]
    refused: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        times = ", ".join(f"{name} {time:.2f} ms" for name, time in self.milliseconds.items())
        reasons = "".join(f"; not {name}: {reason}" for name, reason in self.refused.items())
        return f"members run by {self.execution.name} ({times}{reasons})"


def candidates_for(inputs: Tensor) -> tuple[Execution, ...]:
    """Ways worth trying where the inputs are: on a GPU also compiled ones."""
    if inputs.device.type == "cuda":
        return Vmap(), Loop(), Folded(), Compiled(Folded()), Compiled(Vmap())
    return Vmap(), Loop(), Folded()


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
    candidates: Iterable[Execution] = (),
    repeats: int = 5,
    margin: float = 0.05,
) -> Choice:
    """The candidate with the shortest forward and backward pass on these inputs, each timed in turn `repeats` times.

    On a GPU a pass is timed as a CUDA graph where it can be one, as in training. Candidates that fail, or do not fit
    into memory, are out. An earlier candidate is kept unless a later one is faster by `margin`, so that a tie falls
    the same way every time. Nothing is changed: buffers, gradients and the random state are as before.
    """
    passes: dict[str, Callable[[], None]] = {}
    ways, refused = [], {}
    with kept_randomness(inputs), torch.enable_grad():
        for way in candidates or candidates_for(inputs):
            try:
                passes[way.name] = _ready(partial(_pass, way, module, parameters, buffers, inputs), inputs.device)
                ways.append(way)
            except Exception as error:  # a network that a way cannot run fails in any manner
                refused[way.name] = _reason(error)
        if not ways:
            raise RuntimeError(f"no way to run the members works: {refused}")
        milliseconds = {way.name: float("inf") for way in ways}
        for _ in range(repeats):
            for name, work in passes.items():
                milliseconds[name] = min(milliseconds[name], _time(work, inputs.device))
    best = ways[0]
    for way in ways[1:]:
        if milliseconds[way.name] < (1 - margin) * milliseconds[best.name]:
            best = way
    return Choice(best, milliseconds, refused)


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "it does not fit into memory"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _ready(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The same work warmed up: as a CUDA graph where that can be, else as it is."""
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
    except RuntimeError:  # it reads a value, or allocates in ways a graph cannot hold
        return work
    return graph.replay


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
