"""A whole optimiser step as one CUDA graph: hundreds of small kernels launched as one."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch.optim import Optimizer

from degp.ensemble import Ensemble
from degp.objectives import Objective
from degp.typing import Batch


class CapturedStep:
    """Objective, backward and optimisers on rows of a data set that stays on the GPU, replayed as one graph.

    The optimisers must be `capturable` with their learning rate as a tensor. Losses are not looked at: `total` is the
    last one, to be read now and then.

    Args:
        data: the training set, on the GPU.
        batch_size: rows a step, the same at every step.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        data: Batch,
        objective: Objective,
        optimizers: Sequence[Optimizer],
        batch_size: int,
        *,
        generator: torch.Generator,
        warm_up: int = 3,
    ) -> None:
        self.ensemble, self.data, self.objective, self.optimizers = ensemble, data, objective, optimizers
        self.generator = generator
        self.rows = torch.arange(batch_size, device=data.inputs.device)
        self.total = torch.zeros((), dtype=torch.float64, device=data.inputs.device)
        self.stream = torch.cuda.Stream()
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(generator)
        self._capture(warm_up)

    def __call__(self, rows: Int[Tensor, "B"]) -> None:
        """One step on these rows, queued on the step's own stream."""
        with torch.cuda.stream(self.stream):
            self.rows.copy_(rows)
            self.graph.replay()

    def _capture(self, warm_up: int) -> None:
        start = [parameter.detach().clone() for parameter in self._trained()]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(warm_up):
                self._step()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self._step()
        self._rewind(start)

    def _step(self) -> None:
        batch = self.data[self.rows]
        loss = self.objective(self.ensemble, batch, generator=self.generator)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.total.copy_(loss.total.detach())

    @torch.no_grad()
    def _rewind(self, start: list[Tensor]) -> None:
        """Takes the warm-up back: weights as they were, and optimisers as if they had made no step."""
        for parameter, value in zip(self._trained(), start, strict=True):
            parameter.copy_(value)
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                for value in state.values():
                    if isinstance(value, Tensor):
                        value.zero_()

    def _trained(self) -> list[Tensor]:
        return [p for o in self.optimizers for group in o.param_groups for p in group["params"]]
