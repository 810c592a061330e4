"""A whole optimiser step as a CUDA graph: hundreds of small kernels launched as one.

The part that needs no member is a graph of its own and runs concurrently with the previous step.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields

import torch
from jaxtyping import Int
from torch import Tensor, nn

from degp.methods import Prepared
from degp.methods.contract import as_module
from degp.runtime.optimizers import Adam
from degp.training.step import TrainState, train_step, unchecked
from degp.training.transform import Transform, identity
from degp.typing import Batch, Loss

__all__ = ["Ahead", "CapturedStep", "adam"]

PREPARED = len(fields(Prepared))
WARM_UP = 3  # eager steps before a capture


def adam(parameters: Sequence[nn.Parameter], rate: float, *, fused: bool = False) -> Adam:
    """Adam; on a GPU in the form that a graph can hold, with the learning rate as a tensor.

    Args:
        fused: on a CPU, update each tensor in one pass: a fifth of the time where there are millions of parameters.

    Example:
        >>> from degp.training import fit
        >>> optimizer = adam(list(ensemble.parameters()), 1e-2)
        >>> fit(ensemble, data, method, epochs=2, batch_size=8, optimizer=optimizer).last["step"]
        6
    """
    device = parameters[0].device
    if device.type != "cuda":
        return Adam(parameters, lr=rate, fused=fused)
    return Adam(parameters, lr=torch.tensor(rate, device=device), capturable=True)


class Ahead:
    """Work that makes the inputs of a step, as a graph on its own stream, concurrent with the previous step.

    The CPU queues steps faster than the GPU runs them, so this graph of the next step fills the gaps of the last one.
    Both graphs draw from one generator in turn, as eager steps would; but a graph reads the generator's offset from its
    own place in memory, so a running graph must not share it with another.

    Args:
        work: from rows and a generator to tensors.
        batch_size: how many rows.
        generator: the step's.
        mode: which calls of other threads are errors during the capture.
    """

    def __init__(
        self,
        work: Callable[[Int[Tensor, "B"], torch.Generator], Sequence[Tensor]],
        batch_size: int,
        generator: torch.Generator,
        mode: str = "global",
    ) -> None:
        self.rows = torch.arange(batch_size, device=generator.device)
        self.stream, self.graph, self.taken = torch.cuda.Stream(), torch.cuda.CUDAGraph(), torch.cuda.Event()
        self.generator, self.draws = generator, generator.clone_state()
        self.order = self.rows.untyped_storage()
        self.graph.register_generator_state(self.draws)
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode=mode):
            self.made = work(self.rows, self.draws)
        self.results = [torch.empty_like(value) for value in self.made]

    def __call__(self, rows: Int[Tensor, "B"]) -> None:
        """Queues the work for these rows; the current stream waits for it and finds it in `results`.

        Rows may be views of one tensor, such as the order of an epoch, which must then not change.
        """
        self._wait_for(rows)
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.taken)
            self.rows.copy_(rows)
            self.draws.set_offset(self.generator.get_offset())
            self.graph.replay()
            self.generator.set_offset(self.draws.get_offset())
        torch.cuda.current_stream().wait_stream(self.stream)
        for result, made in zip(self.results, self.made, strict=True):
            result.copy_(made)
        self.taken.record()

    def _wait_for(self, rows: Int[Tensor, "B"]) -> None:
        """Waits for the rows, unless they belong to an order that is complete: the queue may hold a whole step."""
        order = rows.untyped_storage()
        if order.data_ptr() != self.order.data_ptr():
            self.stream.wait_stream(torch.cuda.current_stream())
            self.order = order  # kept, so that no other order can take its place in memory


class CapturedStep:
    """`train_step` on rows of a data set that stays on the GPU, as one graph; transform and `prepare` as another.

    The optimisers must be capturable, with their learning rate as a tensor: `adam`, or `fused=True` for SGD. `loss` is
    the last step's, to be read now and then.

    Args:
        state: the run; capturing leaves it as it is.
        data: the training set, on the GPU; images as bytes.
        batch_size: rows per step, the same at every step.
        transform: applied to a batch's inputs first: random crops and flips, normalisation.
        precision: of the members' and the prior's networks, such as torch.bfloat16; the algebra stays in float64.
    """

    def __init__(
        self,
        state: TrainState,
        data: Batch,
        batch_size: int,
        *,
        transform: Transform = identity,
        precision: torch.dtype | None = None,
    ) -> None:
        self.state, self.data, self.generator = state, data, state.generator
        self.transform, self.precision = transform, precision
        self.rows = torch.arange(batch_size, device=data.inputs.device)
        self.stream = torch.cuda.Stream(priority=-1)  # before the work ahead
        self.graph = torch.cuda.CUDAGraph()
        # NCCL has a thread that watches its messages, which a capture must let work
        self.mode = "global" if state.ensemble.mesh.world.alone else "thread_local"
        self.ahead: Ahead | None = None
        self.loss = self._capture()

    def __call__(self, rows: Int[Tensor, "B"]) -> None:
        """One step on these rows, queued on the step's own stream."""
        with torch.cuda.stream(self.stream):
            if self.ahead is None:
                self.rows.copy_(rows)
            else:
                self.ahead(rows)
            self.graph.replay()

    def _capture(self) -> Loss:
        """Records the graphs and restores everything else, also where a step fails."""
        start = {name: value.clone() for name, value in self._tensors().items()}
        generators = [self.generator, torch.cuda.default_generators[self.rows.device.index]]  # in every graph
        random = [generator.clone_state() for generator in generators]
        self.stream.wait_stream(torch.cuda.current_stream())
        self.graph.register_generator_state(self.generator)
        try:
            with torch.cuda.stream(self.stream):
                for _ in range(WARM_UP):
                    self._step()
                ahead = not any(value.requires_grad for value in self._prepared(self.rows, self.generator))
            torch.cuda.synchronize()
            if ahead:  # no gradient flows back into the preparation
                self.ahead = Ahead(self._prepared, len(self.rows), self.generator, self.mode)
            with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode=self.mode):
                loss = self._step()
            for generator, before in zip(generators, random, strict=True):
                generator.set_state(before.get_state())
            return loss
        except BaseException:
            for generator, before in zip(generators, random, strict=True):
                generator.graphsafe_set_state(before)  # its own state still assumes a capture
            raise
        finally:
            self._rewind(start)

    def _step(self) -> Loss:
        made = self._prepared(self.rows, self.generator) if self.ahead is None else self.ahead.results
        (inputs, targets, *weights), prepared = made[:-PREPARED], made[-PREPARED:]
        batch = Batch(inputs, targets, self.data.population, *weights)
        with self._autocast():
            return train_step(self.state, batch, Prepared(*prepared), generator=self.generator, inspect=unchecked)

    def _prepared(self, rows: Int[Tensor, "B"], generator: torch.Generator) -> list[Tensor]:
        """The batch's inputs, targets and weights, if it has any, and what the method prepares on it."""
        chosen = self.data[rows]
        inputs = self.transform(chosen.inputs, generator)
        weights = [] if chosen.weights is None else [chosen.weights]
        with self._autocast():
            prepared = self.state.method.prepare(inputs, generator=generator).tensors()
        return [inputs, chosen.targets, *weights, *prepared]

    def _autocast(self) -> torch.autocast:
        # no cache: a graph must cast the weights again at every replay
        return torch.autocast("cuda", self.precision, enabled=self.precision is not None, cache_enabled=False)

    @torch.no_grad()
    def _rewind(self, start: dict[str, Tensor]) -> None:
        """Undoes the warm-up: values as before, and zero for what the optimisers began to keep in it."""
        for name, value in self._tensors().items():
            value.copy_(start[name]) if name in start else value.zero_()

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"ensemble {name}": value for name, value in self.state.ensemble.state_dict().items()}
        tensors |= {f"method {name}": value for name, value in as_module(self.state.method).state_dict().items()}
        for o, optimizer in enumerate(self.state.optimizers):
            for p, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
                kept = optimizer.state.get(parameter, {})
                tensors |= {f"optimizer {o} {p} {key}": v for key, v in kept.items() if isinstance(v, Tensor)}
        return tensors
