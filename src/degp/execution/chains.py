"""Runs of equal 3 × 3 convolutions with ReLUs between them, as the prior's networks have: one kernel for a whole run.

A convolution of 16 channels does so little with each number that a GPU spends its time on reading and writing them.
Here a few images of one network stay with the processor that began on them, from the first layer to the last, and the
ReLUs cost no pass of their own. For passes that nobody asks the gradient of.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from degp.execution.either import Either
from degp.execution.layers import Convolution, Pixelwise
from degp.execution.layout import by_pixels, channels_second
from degp.execution.narrow import by_taps, has_kernel, is_narrow, plain
from degp.execution.ways import Tensors

Step = tuple[str, Callable[..., Tensor], tuple[str, ...]]  # the value's name, what gives it, the values it takes


@dataclass(frozen=True)
class Chain:
    """x ← ReLU(Kₗ * x), layer after layer, with as many channels after each as before."""

    layers: tuple[Convolution, ...]

    def __call__(self, state: Tensors, x: Float[Tensor, "N MC H W"]) -> Float[Tensor, "N MC H W"]:
        kernels = [state[f"{layer.name}.weight"] for layer in self.layers]
        if _for_one_kernel(x, kernels):
            together = by_taps(torch.stack(kernels, 1)).to(x.dtype)
            return channels_second(torch.ops.degp.chain(by_pixels(x), together))
        for layer in self.layers:
            x = F.relu(layer(state, x))
        return x


def chained(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The same steps, with every run of two or more such convolutions in one."""
    uses = Counter(argument for _, _, arguments in steps for argument in arguments)
    return tuple(_merged(run) for run in _runs(steps, uses))


def _runs(steps: tuple[Step, ...], uses: Counter[str]) -> Iterator[list[Step]]:
    """Steps one by one, and those of a run together: convolution, ReLU, convolution, ReLU, …"""
    run: list[Step] = []
    for step in steps:
        if run and not _goes_on(run, step, uses):
            yield from _closed(run)
            run = []
        if run or _is_link(step[1]):
            run.append(step)
        else:
            yield [step]
    yield from _closed(run)


def _goes_on(run: list[Step], step: Step, uses: Counter[str]) -> bool:
    """Whether a step takes what the run gives, which nothing else may want, and is the one that must come next."""
    name, before, _ = run[-1]
    if step[2] != (name,) or uses[name] != 1:
        return False
    if isinstance(before, Convolution):
        return isinstance(step[1], Pixelwise) and isinstance(step[1].layer, nn.ReLU)
    first = run[0][1]
    assert isinstance(first, Convolution)
    return _is_link(step[1]) and step[1].layer.in_channels == first.layer.in_channels


def _closed(run: list[Step]) -> Iterator[list[Step]]:
    whole = len(run) - len(run) % 2  # a last convolution without its ReLU stays by itself
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


def _for_one_kernel(x: Float[Tensor, "N MC H W"], kernels: list[Float[Tensor, "M C C 3 3"]]) -> bool:
    wanted = torch.is_grad_enabled() and any(value.requires_grad for value in (x, *kernels))
    return has_kernel(x, kernels[0]) and not wanted


# The operation, opaque to torch.compile ---------------------------------------------------------------------------


def one_by_one(x: Float[Tensor, "N H W MC"], kernels: Float[Tensor, "M L C 3 3 C"]) -> Float[Tensor, "N H W MC"]:
    """ReLU(K_L * … ReLU(K₁ * x)), as PyTorch has it."""
    for kernel in kernels.unbind(1):
        x = F.relu(plain(x, kernel))
    return x


_operation = torch.library.custom_op(
    "degp::chain", Either(one_by_one, "chain"), mutates_args=(), schema="(Tensor x, Tensor kernels) -> Tensor"
)
_operation.register_fake(lambda x, kernels: torch.empty_like(x, memory_format=torch.contiguous_format))
