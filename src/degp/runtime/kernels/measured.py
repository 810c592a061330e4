"""A function with two implementations, plain PyTorch and a kernel of ours: the faster one on this machine."""

import warnings
from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor

__all__ = ["MARGIN", "REPEATS", "SLACK", "MeasuredKernel"]

Implementation = Callable[..., Tensor]
Arguments = tuple[Tensor | bool, ...]

REPEATS = 10  # passes per measurement
MARGIN = 0.05  # by which a kernel must be faster, so that a tie always falls the same way
SLACK = 0.05  # relative norm of the difference between two results in half precision


class MeasuredKernel:
    """A function of tensors and options that measures two implementations for each new set of sizes on a GPU.

    On a CPU, and while a graph is captured, where nothing can be measured, it runs the plain implementation. A kernel
    that fails or gives different numbers is not used, and a warning says why. Values that are not finite decide
    nothing: the next call measures again.

    Args:
        plain: the implementation that always works.
        kernel: the name of the other in `degp.runtime.kernels.triton_convolutions`, imported only on a GPU.
    """

    def __init__(self, plain: Implementation, kernel: str) -> None:
        self.plain = plain
        self.kernel = kernel
        self.chosen: dict[tuple[object, ...], Implementation] = {}

    def __call__(self, first: Tensor, *others: Tensor | bool) -> Tensor:
        return self._implementation(first, others)(first, *others)

    def _implementation(self, first: Tensor, others: Arguments) -> Implementation:
        device = first.device
        sizes = device, first.dtype, first.shape, *(o.shape if isinstance(o, Tensor) else o for o in others)
        if sizes not in self.chosen and device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            faster = self._faster(first, *others)
            if faster is None:
                return self.plain
            self.chosen[sizes] = faster
        return self.chosen.get(sizes, self.plain)

    def _faster(self, *arguments: Tensor | bool) -> Implementation | None:
        """The faster implementation; None where values are not finite, so that results cannot be compared."""
        try:
            kernel: Implementation = getattr(import_module("degp.runtime.kernels.triton_convolutions"), self.kernel)
            expected, found = self.plain(*arguments).float(), kernel(*arguments).float()
            if not torch.isfinite(expected).all():
                return None
            if not torch.norm(found - expected) <= SLACK * torch.norm(expected):
                raise ArithmeticError("its results are not those of PyTorch's convolutions")
            own, plain = (_milliseconds(form, arguments) for form in (kernel, self.plain))
            return kernel if own < (1 - MARGIN) * plain else self.plain
        except Exception as error:  # Triton fails in many ways: not installed, no compiler, no memory, unknown GPU
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(f"convolutions run in plain PyTorch, because our kernel cannot: {reason}", stacklevel=2)
            return self.plain


def _milliseconds(implementation: Implementation, arguments: Arguments) -> float:
    """The shortest of three measurements of `REPEATS` passes."""
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPEATS):
            implementation(*arguments)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times)
