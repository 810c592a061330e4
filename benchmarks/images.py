"""Ten ResNets on a GPU: one optimiser step on 128 images, by each way to run the members."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.timing import in_turns
from degp import Batch, Categorical, Ensemble, objectives
from degp.data import CIFAR10_SCALE, CropAndFlip, Normalise
from degp.execution import Compiled, Execution, Folded, Loop, Vmap
from degp.nets import lite_resnet_features, resnet
from degp.priors import MonteCarloNNGP
from degp.training.capture import CapturedStep

B, CLASSES, IMAGES = 128, 10, 4096
BANDWIDTH = 4.3e12  # bytes a second of an H200's memory
Step = Callable[[], object]


def run() -> list[dict[str, Any]]:
    """Milliseconds a step, times faster than a plain loop of the same members, and DE-GP ÷ DE."""
    if not torch.cuda.is_available():
        return [{"step": "needs a GPU"}]
    torch.backends.cudnn.benchmark = True
    return [*_compare(20, 10), *_compare(56, 10)]


def _compare(depth: int, members: int) -> list[dict[str, Any]]:
    steps: dict[str, Step] = {"DE, loop, eager": _eager(depth, members, Loop())}
    failures = {}
    for way in (Folded(), Compiled(Folded()), Compiled(Vmap())):
        for method in ("DE", "DE-GP"):
            name = f"{method}, {way.name}, one graph"
            try:
                steps[name] = _captured(depth, members, way, method)
            except Exception as error:  # what a way cannot do is part of the table
                failures[name] = str(error).splitlines()[0]
    milliseconds = in_turns(steps, rounds=15)
    loop = milliseconds["DE, loop, eager"]
    rows = [
        {
            "step": f"ResNet-{depth} × {members}: {name}",
            "ms": time,
            "times faster than the loop": loop / time,
            "ratio to DE": time / milliseconds.get(name.replace("DE-GP", "DE"), time),
            "× the floor by memory traffic": time / _floor(depth, members),
        }
        for name, time in milliseconds.items()
    ]
    return rows + [{"step": f"{name}: {reason}"} for name, reason in failures.items()]


def _floor(depth: int, members: int) -> float:
    """Milliseconds to move the activations: about 15 passes over them, in bf16."""
    count = (depth - 2) // 6
    activations = 32 * 32 * 16 * (2 * count + 1) + 16 * 16 * 32 * 2 * count + 8 * 8 * 64 * 2 * count
    return 1e3 * 15 * 2 * activations * B * members / BANDWIDTH


def _data() -> Batch:
    generator = torch.Generator("cuda").manual_seed(0)
    images = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8, device="cuda", generator=generator)
    return Batch(images, torch.randint(CLASSES, (IMAGES,), device="cuda", generator=generator))


def _objective(method: str) -> nn.Module:
    likelihood = Categorical(0.1, learned=True)
    if method == "DE":
        return objectives.de(likelihood).cuda()
    prior = MonteCarloNNGP(lite_resnet_features(20), execution=Compiled(Folded()))
    return objectives.degp(likelihood, prior, alpha=0.01, beta=0.1).cuda()


def _optimisers(ensemble: Ensemble, objective: nn.Module) -> list[torch.optim.Optimizer]:
    rate = torch.tensor(0.1, device="cuda")
    adam = torch.optim.Adam(objective.parameters(), lr=torch.tensor(1e-3, device="cuda"), capturable=True)
    return [torch.optim.SGD(ensemble.parameters(), lr=rate, momentum=0.9, fused=True), adam]


def _transform() -> Callable[[torch.Tensor, torch.Generator], torch.Tensor]:
    crop, normalise = CropAndFlip(), Normalise(*CIFAR10_SCALE, channels_last=True).cuda()
    return lambda images, generator: normalise(crop(images, generator))


def _captured(depth: int, members: int, way: Execution, method: str) -> Step:
    ensemble = Ensemble(lambda: resnet(depth, CLASSES), members, execution=way).cuda()
    objective, data = _objective(method), _data()
    generator = torch.Generator("cuda").manual_seed(1)
    step = CapturedStep(
        ensemble,
        data,
        objective,
        _optimisers(ensemble, objective),
        B,
        generator=generator,
        transform=_transform(),
        precision=torch.bfloat16,
    )
    rows = torch.arange(B, device="cuda")
    return lambda: step(rows)


def _eager(depth: int, members: int, way: Execution) -> Step:
    ensemble = Ensemble(lambda: resnet(depth, CLASSES), members, execution=way).cuda()
    objective, data, transform = _objective("DE"), _data(), _transform()
    optimisers = _optimisers(ensemble, objective)
    generator = torch.Generator("cuda").manual_seed(1)

    def step() -> None:
        batch = Batch(transform(data.inputs[:B], generator), data.targets[:B], IMAGES)
        with torch.autocast("cuda", torch.bfloat16):
            loss = objective(ensemble, batch, generator=generator)
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.total.backward()
        for optimiser in optimisers:
            optimiser.step()

    return step
