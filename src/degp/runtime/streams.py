"""Two pieces of work at once on a GPU: one on the current CUDA stream, one on a side stream."""

from collections.abc import Iterator
from contextlib import contextmanager

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

    @contextmanager
    def using(self, *values: Tensor) -> Iterator[None]:
        """A block of work on the side stream, which reads these values of the current one."""
        if self.stream is None:
            yield
            return
        for tensor in values:
            tensor.record_stream(self.stream)
        self.stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self.stream):
                yield
        except BaseException:
            self.join()  # a graph under capture could not end otherwise, and would hide the error
            raise

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
