"""A whole optimiser step as one CUDA graph: hundreds of small kernels launched as one."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from degp.ensemble import Ensemble
from degp.objectives import Objective
from degp.training.transform import Transform, as_they_are
from degp.typing import Batch, Loss


def adam(parameters: Sequence[nn.Parameter], rate: float) -> Adam:
    """Adam; on a GPU in the form that a graph can hold, which reads the rate where it is."""
    device = parameters[0].device
    if device.type != "cuda":
        return Adam(parameters, lr=rate)
    return Adam(parameters, lr=torch.tensor(rate, device=device), capturable=True)


class CapturedStep:
    """Transform, objective, backward and optimisers on rows of a data set that stays on the GPU, as one graph.

    The optimisers must be able to run in a graph, with their learning rate as a tensor: `adam`, or `fused=True` for
    SGD. Losses are not looked at: `loss` is the last one, to be read now and then.

    Args:
        data: the training set, on the GPU; images as bytes.
        batch_size: rows a step, the same at every step.
        transform: what is done to a batch's inputs first: random crops and flips, normalisation.
        precision: of the members' and the prior's networks, such as torch.bfloat16; the algebra stays in float64.
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
        transform: Transform = as_they_are,
        precision: torch.dtype | None = None,
        warm_up: int = 3,
    ) -> None:
        self.ensemble, self.data, self.objective, self.optimizers = ensemble, data, objective, optimizers
        self.generator, self.transform, self.precision = generator, transform, precision
        self.rows = torch.arange(batch_size, device=data.inputs.device)
        self.stream = torch.cuda.Stream()
        self.graph = torch.cuda.CUDAGraph()
        self.loss = self._capture(warm_up)

    def __call__(self, rows: Int[Tensor, "B"]) -> None:
        """One step on these rows, queued on the step's own stream."""
        with torch.cuda.stream(self.stream):
            self.rows.copy_(rows)
            self.graph.replay()

    def _capture(self, warm_up: int) -> Loss:
        """The graph recorded, and all else as it was before, also where a step fails."""
        random, start = self.generator.clone_state(), {name: value.clone() for name, value in self._state().items()}
        self.stream.wait_stream(torch.cuda.current_stream())
        self.graph.register_generator_state(self.generator)
        try:
            with torch.cuda.stream(self.stream):
                for _ in range(warm_up):
                    self._step()
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph, stream=self.stream):
                loss = self._step()
            self.generator.set_state(random.get_state())
            return loss
        except BaseException:
            self.generator.graphsafe_set_state(random)  # its own state still takes itself to be in a graph
            raise
        finally:
            self._rewind(start)

    def _step(self) -> Loss:
        rows = self.data[self.rows]
        batch = Batch(self.transform(rows.inputs, self.generator), rows.targets, rows.population)
        # no cache: a graph must cast the weights anew at every replay
        with torch.autocast("cuda", self.precision, enabled=self.precision is not None, cache_enabled=False):
            loss = self.objective(self.ensemble, batch, generator=self.generator)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return Loss(loss.total.detach(), loss.terms)

    @torch.no_grad()
    def _rewind(self, start: dict[str, Tensor]) -> None:
        """Takes the warm-up back: all as it was, and zero what the optimisers began to keep in it."""
        for name, value in self._state().items():
            value.copy_(start[name]) if name in start else value.zero_()

    def _state(self) -> dict[str, Tensor]:
        own = self.objective.state_dict() if isinstance(self.objective, nn.Module) else {}
        state = {f"ensemble {name}": value for name, value in self.ensemble.state_dict().items()}
        state |= {f"objective {name}": value for name, value in own.items()}
        for o, optimizer in enumerate(self.optimizers):
            for p, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
                kept = optimizer.state.get(parameter, {})
                state |= {f"optimizer {o} {p} {key}": v for key, v in kept.items() if isinstance(v, Tensor)}
        return state
