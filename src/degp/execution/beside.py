"""Two pieces of work at once on a GPU: one on the usual stream, one beside it."""

from types import TracebackType

import torch
from torch import Tensor


class Beside:
    """Work whose result is needed only later, on a second CUDA stream; on the CPU in its turn.

    with Beside(inputs) as work:
        gram = prior(inputs)
    outputs = ensemble(inputs)  # at the same time
    with work.taking(outputs):
        kl = divergence(outputs, gram)
    data = likelihood(outputs)  # at the same time
    work.join(kl)

    Gradients flow back on the stream that a value came from, so backward passes run beside each other too.
    """

    def __init__(self, like: Tensor) -> None:
        self.stream = _second_stream(like.device) if like.device.type == "cuda" else None

    def __enter__(self) -> "Beside":
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

    def taking(self, *values: Tensor) -> "Beside":
        """The same stream again, for work on values of the usual one."""
        if self.stream is not None:
            for tensor in values:
                tensor.record_stream(self.stream)
        return self

    def join(self, *results: Tensor) -> None:
        """Whatever follows waits for the work and may use its results."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            for tensor in results:
                tensor.record_stream(torch.cuda.current_stream())


_streams: dict[tuple[torch.device, int], torch.cuda.Stream] = {}


def _second_stream(device: torch.device) -> torch.cuda.Stream:
    """One for each stream that work may be on: two graphs that run at once must not wait for each other."""
    key = device, torch.cuda.current_stream(device).cuda_stream
    if key not in _streams:
        _streams[key] = torch.cuda.Stream(device, priority=-1)  # ready early, so that nothing waits for it
    return _streams[key]
