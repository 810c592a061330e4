"""A function with a plain form and a kernel of its own: the faster of the two on this machine."""

import warnings
from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor

Form = Callable[..., Tensor]
Given = tuple[Tensor | bool, ...]

REPEATS = 10  # passes in one measurement
MARGIN = 0.05  # by which a kernel must be faster, so that a tie falls the same way every time
SLACK = 0.05  # between two results in half precision, relative to all


class Either:
    """One of two forms of a function of tensors and options, chosen by measurement when it meets new sizes on a GPU.

    On a CPU, and while a graph is captured, where nothing can be measured, it is the plain form. A kernel that fails,
    or gives other numbers, is done without, and a warning says why. From numbers that are not finite nothing follows:
    the next time it is asked again.

    Args:
        plain: the form that always works.
        kernel: the name of the other in `degp.execution.triton_convolutions`, imported only when there is a GPU.
    """

    def __init__(self, plain: Form, kernel: str) -> None:
        self.plain = plain
        self.kernel = kernel
        self.chosen: dict[tuple[object, ...], Form] = {}

    def __call__(self, first: Tensor, *others: Tensor | bool) -> Tensor:
        return self._form(first, others)(first, *others)

    def _form(self, first: Tensor, others: Given) -> Form:
        device = first.device
        sizes = device, first.dtype, first.shape, *(o.shape if isinstance(o, Tensor) else o for o in others)
        if sizes not in self.chosen and device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            faster = self._faster(first, *others)
            if faster is None:
                return self.plain
            self.chosen[sizes] = faster
        return self.chosen.get(sizes, self.plain)

    def _faster(self, *given: Tensor | bool) -> Form | None:
        """The faster form; None where it cannot be told whether both give the same."""
        try:
            kernel: Form = getattr(import_module("degp.execution.triton_convolutions"), self.kernel)
            expected, found = self.plain(*given).float(), kernel(*given).float()
            if not torch.isfinite(expected).all():
                return None
            if not torch.norm(found - expected) <= SLACK * torch.norm(expected):
                raise ArithmeticError("its numbers are not those of the convolutions")
            own, plain = (_milliseconds(form, given) for form in (kernel, self.plain))
            return kernel if own < (1 - MARGIN) * plain else self.plain
        except Exception as error:  # Triton's are many: no Triton, no compiler, no room, a GPU that it does not know
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(f"convolutions run as PyTorch has them, because our kernel cannot: {reason}", stacklevel=2)
            return self.plain


def _milliseconds(form: Form, given: Given) -> float:
    """The shortest of three times for `REPEATS` passes, one queued behind the other."""
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPEATS):
            form(*given)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times)
