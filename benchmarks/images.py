"""Ten ResNets, and fifty MLPs, on a GPU: one optimiser step on 128 rows, by each way to run the members."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.timing import in_turns
from degp import Batch, Categorical, Ensemble, Gaussian, objectives
from degp.data import CIFAR10_SCALE, CropAndFlip, Normalise
from degp.execution import Compiled, Execution, Folded, Loop, Vmap
from degp.nets import lite_resnet_features, mlp, resnet
from degp.priors import NNGP, MonteCarloNNGP
from degp.training.capture import CapturedStep, adam
from degp.training.transform import Transform, as_they_are

B, CLASSES, ROWS = 128, 10, 4096
BURST, SLOW_BURST = 20, 3  # steps at a time: of a graph, and of a plain loop
BANDWIDTH = 4.3e12  # bytes a second of an H200's memory
Step = Callable[[], object]
METHODS = ("DE", "DE-GP")
FEWER_DRAWS = "DE-GP with five networks as prior"  # in place of ten: half of what the prior costs


@dataclass(frozen=True)
class Case:
    """What is trained: the networks, on what, and the prior's networks for DE-GP."""

    name: str
    make_network: Callable[[], nn.Module]
    data: Callable[[], Batch]
    objective: Callable[[str], nn.Module]
    transform: Callable[[], Transform]
    members: int
    ways: tuple[Execution, ...]
    floor: float | None = None
    methods: tuple[str, ...] = METHODS  # of the first way; the others have `METHODS`


def run() -> list[dict[str, Any]]:
    """Milliseconds a step, times faster than a plain loop of the same members, and DE-GP ÷ DE."""
    torch.backends.cudnn.benchmark = True
    return [row for case in (_resnets(20), _resnets(56), _mlps()) for row in _compare(case)]


def _resnets(depth: int) -> Case:
    return Case(
        f"ResNet-{depth} × 10",
        lambda: resnet(depth, CLASSES),
        _images,
        _on_images,
        _crop_flip_normalise,
        members=10,
        ways=(Compiled(Folded()), Compiled(Vmap()), Folded())[
            : 3 if depth == 20 else 1
        ],  # others take minutes to compile
        floor=_floor(depth, 10),
        methods=(*METHODS, FEWER_DRAWS),
    )


def _mlps() -> Case:
    return Case(
        "MLP 8-64-64-1 × 50",
        lambda: mlp(8, (64, 64), 1),
        _rows,
        _on_rows,
        lambda: as_they_are,
        members=50,
        ways=(Vmap(), Compiled(Vmap())),
    )


def _compare(case: Case) -> list[dict[str, Any]]:
    steps: dict[str, Step] = {"DE, loop, eager": _eager(case, Loop())}
    lengths, failures = {"DE, loop, eager": SLOW_BURST}, {}
    for way in case.ways:
        for method in case.methods if way is case.ways[0] else METHODS:
            name = f"{method}, {way.name}, captured"
            try:
                steps[name], lengths[name] = _captured(case, way, method), BURST
            except Exception as error:  # what a way cannot do is part of the table
                failures[name] = str(error).splitlines()[0]
    bursts = {name: partial(_burst, step, lengths[name]) for name, step in steps.items()}
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


def _burst(step: Step, count: int) -> None:
    """Steps one after the other, as in training: a step is queued while the one before it runs."""
    for _ in range(count):
        step()


def _floor(depth: int, members: int) -> float:
    """Milliseconds to move the activations: about 15 passes over them, in bf16."""
    count = (depth - 2) // 6
    activations = 32 * 32 * 16 * (2 * count + 1) + 16 * 16 * 32 * 2 * count + 8 * 8 * 64 * 2 * count
    return 1e3 * 15 * 2 * activations * B * members / BANDWIDTH


def _images() -> Batch:
    generator = torch.Generator("cuda").manual_seed(0)
    images = torch.randint(256, (ROWS, 3, 32, 32), dtype=torch.uint8, device="cuda", generator=generator)
    return Batch(images, torch.randint(CLASSES, (ROWS,), device="cuda", generator=generator))


def _rows() -> Batch:
    generator = torch.Generator("cuda").manual_seed(0)
    inputs = torch.randn(ROWS, 8, device="cuda", generator=generator)
    return Batch(inputs, inputs[:, :1].sin())


def _on_images(method: str) -> nn.Module:
    likelihood = Categorical(0.1, learned=True)
    if method == "DE":
        return objectives.de(likelihood).cuda()
    draws = 5 if method == FEWER_DRAWS else 10
    prior = MonteCarloNNGP(lite_resnet_features(20), num_draws=draws, execution=Compiled(Folded()))
    return objectives.degp(likelihood, prior, alpha=0.01, beta=0.1).cuda()


def _on_rows(method: str) -> nn.Module:
    likelihood = Gaussian(0.1, learned=True)
    if method == "DE":
        return objectives.de(likelihood).cuda()
    return objectives.degp(likelihood, NNGP(2), alpha=0.01).cuda()


def _optimisers(ensemble: Ensemble, objective: nn.Module) -> list[torch.optim.Optimizer]:
    rate = torch.tensor(0.1, device="cuda")
    learned = adam(list(objective.parameters()), 1e-3)
    return [torch.optim.SGD(ensemble.parameters(), lr=rate, momentum=0.9, fused=True), learned]


def _crop_flip_normalise() -> Transform:
    crop, normalise = CropAndFlip(), Normalise(*CIFAR10_SCALE, channels_last=True).cuda()
    return lambda images, generator: normalise(crop(images, generator))


def _captured(case: Case, way: Execution, method: str) -> Step:
    ensemble = Ensemble(case.make_network, case.members, execution=way).cuda()
    objective = case.objective(method)
    step = CapturedStep(
        ensemble,
        case.data(),
        objective,
        _optimisers(ensemble, objective),
        B,
        generator=torch.Generator("cuda").manual_seed(1),
        transform=case.transform(),
        precision=torch.bfloat16,
    )
    rows = torch.arange(B, device="cuda")
    return lambda: step(rows)


def _eager(case: Case, way: Execution) -> Step:
    ensemble = Ensemble(case.make_network, case.members, execution=way).cuda()
    objective, data, transform = case.objective("DE"), case.data(), case.transform()
    optimisers = _optimisers(ensemble, objective)
    generator = torch.Generator("cuda").manual_seed(1)

    def step() -> None:
        batch = Batch(transform(data.inputs[:B], generator), data.targets[:B], ROWS)
        with torch.autocast("cuda", torch.bfloat16):
            loss = objective(ensemble, batch, generator=generator)
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.total.backward()
        for optimiser in optimisers:
            optimiser.step()

    return step
