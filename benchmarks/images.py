"""Ten ResNets, and fifty MLPs, on a GPU: one optimiser step on 128 rows, by execution strategy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.timing import in_turns
from degp import Batch, Categorical, Ensemble, Gaussian, batch_loss, methods
from degp.nets import lite_resnet_features, mlp, resnet
from degp.priors import NNGP, MonteCarloNNGP
from degp.runtime.execution import Compiled, Execution, Grouped, Loop, Vmap
from degp.training import TrainState, adam
from degp.training.graphs import CapturedStep
from degp.training.transform import Transform, identity
from degp.vision.augmentation import CIFAR10_SCALE, CropAndFlip, Normalise

B, CLASSES, ROWS = 128, 10, 4096
ALPHA = 0.01 * ROWS / B  # the paper's 0.01, in units of Bayes' weight
BURST, SLOW_BURST = 20, 3  # steps at a time: of a graph, and of a plain loop
BANDWIDTH = 4.3e12  # bytes per second of an H200's memory
Step = Callable[[], object]
Module = methods.Memberwise | methods.DEGP
METHODS = ("DE", "DE-GP")
FEWER_DRAWS = "DE-GP with five networks as prior"  # instead of ten: half the prior's cost


@dataclass(frozen=True)
class Case:
    """Networks, data and methods to measure."""

    name: str
    make_network: Callable[[], nn.Module]
    data: Callable[[], Batch]
    make_method: Callable[[str], Module]
    transform: Callable[[], Transform]
    members: int
    strategies: tuple[Execution, ...]
    floor: float | None = None
    methods: tuple[str, ...] = METHODS  # of the first strategy; the others have `METHODS`


def run() -> list[dict[str, Any]]:
    """Milliseconds per step, speed-up over a plain loop of the same members, and DE-GP ÷ DE."""
    torch.backends.cudnn.benchmark = True
    return [row for case in (_resnets(20), _resnets(56), _mlps()) for row in _compare(case)]


def _resnets(depth: int) -> Case:
    return Case(
        f"ResNet-{depth} × 10",
        lambda: resnet(depth, CLASSES),
        images_on_gpu,
        _on_images,
        crop_flip_normalise,
        members=10,
        # the others take minutes to compile for deep networks
        strategies=(Compiled(Grouped()), Compiled(Vmap()), Grouped())[: 3 if depth == 20 else 1],
        floor=memory_floor(depth, 10),
        methods=(*METHODS, FEWER_DRAWS),
    )


def _mlps() -> Case:
    return Case(
        "MLP 8-64-64-1 × 50",
        lambda: mlp(8, (64, 64), 1),
        _rows,
        _on_rows,
        lambda: identity,
        members=50,
        strategies=(Vmap(), Compiled(Vmap())),
    )


def _compare(case: Case) -> list[dict[str, Any]]:
    steps: dict[str, Step] = {"DE, loop, eager": _eager(case, Loop())}
    lengths, failures = {"DE, loop, eager": SLOW_BURST}, {}
    for strategy in case.strategies:
        for method in case.methods if strategy is case.strategies[0] else METHODS:
            name = f"{method}, {strategy.name}, captured"
            try:
                steps[name], lengths[name] = _captured(case, strategy, method), BURST
            except Exception as error:  # what a strategy cannot do is part of the table
                failures[name] = str(error).splitlines()[0]
    bursts = {name: partial(burst, step, lengths[name]) for name, step in steps.items()}
    milliseconds = {name: time / lengths[name] for name, time in in_turns(bursts, rounds=9).items()}
    loop = milliseconds["DE, loop, eager"]
    rows = [
        {
            "step": f"{case.name}: {name}",
            "ms": time,
            "times faster than the loop": loop / time,
            "ratio to DE": time / milliseconds.get(f"DE, {name.split(', ', 1)[1]}", time),
            "× the floor by memory traffic": time / case.floor if case.floor else "",
        }
        for name, time in milliseconds.items()
    ]
    return rows + [{"step": f"{case.name}: {name}: {reason}"} for name, reason in failures.items()]


def burst(step: Step, count: int) -> None:
    """Consecutive steps, as in training: a step is queued while the previous one runs."""
    for _ in range(count):
        step()


def memory_floor(depth: int, members: int) -> float:
    """Milliseconds to move the activations: about 15 passes over them, in bf16."""
    count = (depth - 2) // 6
    activations = 32 * 32 * 16 * (2 * count + 1) + 16 * 16 * 32 * 2 * count + 8 * 8 * 64 * 2 * count
    return 1e3 * 15 * 2 * activations * B * members / BANDWIDTH


def images_on_gpu() -> Batch:
    generator = torch.Generator("cuda").manual_seed(0)
    images = torch.randint(256, (ROWS, 3, 32, 32), dtype=torch.uint8, device="cuda", generator=generator)
    return Batch(images, torch.randint(CLASSES, (ROWS,), device="cuda", generator=generator))


def _rows() -> Batch:
    generator = torch.Generator("cuda").manual_seed(0)
    inputs = torch.randn(ROWS, 8, device="cuda", generator=generator)
    return Batch(inputs, inputs[:, :1].sin())


def _on_images(name: str) -> Module:
    likelihood = Categorical(0.1, learned=True)
    if name == "DE":
        return methods.de(likelihood).cuda()
    prior = MonteCarloNNGP(lite_resnet_features(20), num_draws=5 if name == FEWER_DRAWS else 10)
    return methods.degp(likelihood, prior, alpha=ALPHA, beta=0.1).cuda()


def _on_rows(name: str) -> Module:
    likelihood = Gaussian(0.1, learned=True)
    if name == "DE":
        return methods.de(likelihood).cuda()
    return methods.degp(likelihood, NNGP(2), alpha=ALPHA).cuda()


def crop_flip_normalise() -> Transform:
    crop, normalise = CropAndFlip(), Normalise(*CIFAR10_SCALE, channels_last=True).cuda()
    return lambda images, generator: normalise(crop(images, generator))


def _state(case: Case, strategy: Execution, name: str) -> TrainState:
    ensemble, method = Ensemble(case.make_network, case.members, execution=strategy).cuda(), case.make_method(name)
    rate = torch.tensor(0.1, device="cuda")
    weights = torch.optim.SGD(ensemble.parameters(), lr=rate, momentum=0.9, fused=True)
    generator = torch.Generator("cuda").manual_seed(1)
    return TrainState(ensemble, method, [weights, adam(list(method.parameters()), 1e-3)], [], generator)


def _captured(case: Case, strategy: Execution, name: str) -> Step:
    state = _state(case, strategy, name)
    step = CapturedStep(state, case.data(), B, transform=case.transform(), precision=torch.bfloat16)
    rows = torch.arange(B, device="cuda")
    return lambda: step(rows)


def _eager(case: Case, strategy: Execution) -> Step:
    state, data, transform = _state(case, strategy, "DE"), case.data(), case.transform()

    def step() -> None:
        batch = Batch(transform(data.inputs[:B], state.generator), data.targets[:B], ROWS)
        with torch.autocast("cuda", torch.bfloat16):
            loss = batch_loss(state.ensemble, batch, state.method, generator=state.generator)
        for optimizer in state.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        for optimizer in state.optimizers:
            optimizer.step()

    return step
