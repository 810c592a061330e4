"""Chains of equal narrow convolutions with ReLUs, as in the prior's networks, fused into one step of a program."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from degp.runtime.execution.layers import Convolution, Pixelwise
from degp.runtime.execution.strategies import Tensors
from degp.runtime.kernels.chains import has_chain_kernel, run_chain
from degp.runtime.kernels.narrow import is_narrow

__all__ = ["Chain", "Step", "fuse_chains"]

Step = tuple[str, Callable[..., Tensor], tuple[str, ...]]  # the value's name, its operation, the values it takes


@dataclass(frozen=True)
class Chain:
    """x ← ReLU(Kₗ * x), layer after layer, with as many channels after each as before."""

    layers: tuple[Convolution, ...]

    def __call__(self, state: Tensors, x: Float[Tensor, "N MC H W"]) -> Float[Tensor, "N MC H W"]:
        kernels = [state[f"{layer.name}.weight"] for layer in self.layers]
        if has_chain_kernel(x, kernels):
            return run_chain(x, kernels)
        for layer in self.layers:
            x = F.relu(layer(state, x))
        return x


def fuse_chains(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The same steps, with every run of two or more such convolutions as one `Chain`."""
    uses = Counter(argument for _, _, arguments in steps for argument in arguments)
    return tuple(_merged(run) for run in _runs(steps, uses))


def _runs(steps: tuple[Step, ...], uses: Counter[str]) -> Iterator[list[Step]]:
    """Single steps, and those of a run together: convolution, ReLU, convolution, ReLU, …"""
    run: list[Step] = []
    for step in steps:
        if run and not _continues(run, step, uses):
            yield from _closed(run)
            run = []
        if run or _is_link(step[1]):
            run.append(step)
        else:
            yield [step]
    yield from _closed(run)


def _continues(run: list[Step], step: Step, uses: Counter[str]) -> bool:
    """Whether a step is the next of a run: it takes the run's result, which no other step uses."""
    name, before, _ = run[-1]
    if step[2] != (name,) or uses[name] != 1:
        return False
    if isinstance(before, Convolution):
        return isinstance(step[1], Pixelwise) and isinstance(step[1].layer, nn.ReLU)
    first = run[0][1]
    assert isinstance(first, Convolution)
    return _is_link(step[1]) and step[1].layer.in_channels == first.layer.in_channels


def _closed(run: list[Step]) -> Iterator[list[Step]]:
    whole = len(run) - len(run) % 2  # a last convolution without its ReLU stays single
    if whole >= 4:
        yield run[:whole]
        run = run[whole:]
    yield from ([step] for step in run)


def _merged(run: list[Step]) -> Step:
    if len(run) == 1:
        return run[0]
    layers = tuple(operation for _, operation, _ in run if isinstance(operation, Convolution))
    return run[-1][0], Chain(layers), run[0][2]


def _is_link(operation: Callable[..., Tensor]) -> TypeGuard[Convolution]:
    return isinstance(operation, Convolution) and not operation.shared and is_narrow(operation.layer)
