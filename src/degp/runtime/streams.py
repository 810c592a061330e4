"""Two pieces of work at once on a GPU: one on the current CUDA stream, one on a side stream."""

from types import TracebackType

import torch
from torch import Tensor

__all__ = ["SideStream"]


class SideStream:
    """Work whose result is needed only later, on a second CUDA stream; on a CPU it runs in order.

        side = SideStream(outputs)
        with side.using(outputs, gram):
            kl = divergence(outputs, gram)
        data = likelihood(outputs)  # at the same time
        side.join(kl)

    Gradients flow back on the stream that a value came from, so backward passes overlap too.
    """

    def __init__(self, like: Tensor) -> None:
        self.stream = _second_stream(like.device) if like.device.type == "cuda" else None

    def __enter__(self) -> "SideStream":
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
            self._entered = torch.cuda.stream(self.stream)
            self._entered.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            self._entered.__exit__(kind, error, trace)
            if error is not None:
                self.join()  # a graph under capture could not end otherwise, and would hide the error

    def using(self, *values: Tensor) -> "SideStream":
        """Marks values of the current stream that the side stream reads."""
        if self.stream is not None:
            for tensor in values:
                tensor.record_stream(self.stream)
        return self

    def join(self, *results: Tensor) -> None:
        """Makes the current stream wait for the side stream and its results."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            for tensor in results:
                tensor.record_stream(torch.cuda.current_stream())


_streams: dict[tuple[torch.device, int], torch.cuda.Stream] = {}


def _second_stream(device: torch.device) -> torch.cuda.Stream:
    """One side stream per current stream: two graphs that run at once must not wait for each other."""
    key = device, torch.cuda.current_stream(device).cuda_stream
    if key not in _streams:
        _streams[key] = torch.cuda.Stream(device, priority=-1)  # ready early, so that nothing waits for it
    return _streams[key]
