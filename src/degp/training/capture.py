"""A whole optimiser step as one CUDA graph: hundreds of small kernels launched as one.

What of it needs no member is a graph by itself, and runs beside the step before.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from degp.ensemble import Ensemble
from degp.objectives import Groundwork, Objective, WorksAhead
from degp.training.transform import Transform, as_they_are
from degp.typing import Batch, Loss


def adam(parameters: Sequence[nn.Parameter], rate: float) -> Adam:
    """Adam; on a GPU in the form that a graph can hold, which reads the rate where it is."""
    device = parameters[0].device
    if device.type != "cuda":
        return Adam(parameters, lr=rate)
    return Adam(parameters, lr=torch.tensor(rate, device=device), capturable=True)


class Ahead:
    """Work that makes the inputs of a step, as a graph on a stream of its own, beside the step before.

    The CPU queues steps faster than the GPU does them, so that this graph of the next step finds the GPU at work on the
    last one, and fills its gaps. Both graphs draw from one generator in turn, as plain steps would; but a graph reads
    where the generator stands from its own place in memory, so that one running must not share it with another.

    Args:
        work: what is done, from rows and a generator to tensors.
        batch_size: how many rows.
        generator: the step's.
    """

    def __init__(
        self,
        work: Callable[[Int[Tensor, "B"], torch.Generator], Sequence[Tensor]],
        batch_size: int,
        generator: torch.Generator,
    ) -> None:
        self.rows = torch.arange(batch_size, device=generator.device)
        self.stream, self.graph, self.taken = torch.cuda.Stream(), torch.cuda.CUDAGraph(), torch.cuda.Event()
        self.generator, self.draws = generator, generator.clone_state()
        self.order = self.rows.untyped_storage()
        self.graph.register_generator_state(self.draws)
        with torch.cuda.graph(self.graph, stream=self.stream):
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
        """Until they are there, unless they are part of an order that is: all that is queued may be a whole step."""
        order = rows.untyped_storage()
        if order.data_ptr() != self.order.data_ptr():
            self.stream.wait_stream(torch.cuda.current_stream())
            self.order = order  # kept, so that no other order can be in its place


def is_done_in_two(objective: Objective) -> bool:
    """Whether groundwork and `upon` are all that calling the objective does.

    They are not where a subclass has a call of its own, or hooks watch it, or something else answers to these names.
    """
    if not isinstance(objective, WorksAhead):
        return False
    if not isinstance(objective, nn.Module):
        return _place_of("upon", objective) <= _place_of("__call__", objective)
    watched = objective._forward_hooks or objective._forward_pre_hooks
    return not watched and _place_of("upon", objective) <= _place_of("forward", objective)


def _place_of(method: str, objective: Objective) -> int | float:
    """How far up among its classes an object has a method from; infinitely far where none of them has it."""
    return next((place for place, one in enumerate(type(objective).__mro__) if method in vars(one)), math.inf)


class CapturedStep:
    """Transform, objective, backward and optimisers on rows of a data set that stays on the GPU, as one graph.

    The transform and the groundwork of an objective that has some (DE-GP: its prior) are a graph of their own, `Ahead`.

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
        self.stream = torch.cuda.Stream(priority=-1)  # before what is done ahead
        self.graph = torch.cuda.CUDAGraph()
        self.ahead: Ahead | None = None
        self.loss = self._capture(warm_up)

    def __call__(self, rows: Int[Tensor, "B"]) -> None:
        """One step on these rows, queued on the step's own stream."""
        with torch.cuda.stream(self.stream):
            if self.ahead is None:
                self.rows.copy_(rows)
            else:
                self.ahead(rows)
            self.graph.replay()

    def _capture(self, warm_up: int) -> Loss:
        """The graphs recorded, and all else as it was before, also where a step fails."""
        start = {name: value.clone() for name, value in self._state().items()}
        generators = [self.generator, torch.cuda.default_generators[self.rows.device.index]]  # in every graph there is
        random = [generator.clone_state() for generator in generators]
        self.stream.wait_stream(torch.cuda.current_stream())
        self.graph.register_generator_state(self.generator)
        try:
            with torch.cuda.stream(self.stream):
                for _ in range(warm_up):
                    self._step()
                works_ahead = self._works_ahead()
            torch.cuda.synchronize()
            if works_ahead:
                self.ahead = Ahead(self._done_ahead, len(self.rows), self.generator)
            with torch.cuda.graph(self.graph, stream=self.stream):
                loss = self._step()
            for generator, before in zip(generators, random, strict=True):
                generator.set_state(before.get_state())
            return loss
        except BaseException:
            for generator, before in zip(generators, random, strict=True):
                generator.graphsafe_set_state(before)  # its own state still takes itself to be in a graph
            raise
        finally:
            self._rewind(start)

    def _step(self) -> Loss:
        loss = self._loss()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return Loss(loss.total.detach(), loss.terms)

    def _loss(self) -> Loss:
        if self.ahead is None:
            batch = self._batch(self.rows, self.generator)
            with self._autocast():
                return self.objective(self.ensemble, batch, generator=self.generator)
        assert isinstance(self.objective, WorksAhead)
        inputs, targets, *groundwork = self.ahead.results
        batch = Batch(inputs, targets, self.data.population)
        with self._autocast():
            return self.objective.upon(Groundwork(*groundwork), self.ensemble, batch, generator=self.generator)

    def _done_ahead(self, rows: Int[Tensor, "B"], generator: torch.Generator) -> list[Tensor]:
        assert isinstance(self.objective, WorksAhead)
        batch = self._batch(rows, generator)
        with self._autocast():
            done = self.objective.groundwork(batch.inputs, generator=generator)
        return [batch.inputs, batch.targets, done.extra, done.root, done.inverse_root]

    def _works_ahead(self) -> bool:
        """Whether the objective has groundwork, into which no gradient goes back."""
        if not is_done_in_two(self.objective):
            return False
        return not any(value.requires_grad for value in self._done_ahead(self.rows, self.generator))

    def _batch(self, rows: Int[Tensor, "B"], generator: torch.Generator) -> Batch:
        chosen = self.data[rows]
        return Batch(self.transform(chosen.inputs, generator), chosen.targets, chosen.population)

    def _autocast(self) -> torch.autocast:
        # no cache: a graph must cast the weights anew at every replay
        return torch.autocast("cuda", self.precision, enabled=self.precision is not None, cache_enabled=False)

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
