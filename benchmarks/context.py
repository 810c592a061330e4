"""Ten ResNet-20s on a GPU: what a step costs with a shallower prior, with context images, and under `torchrun`.

One optimiser step on 128 images, in bf16 and compiled. Steps of several ranks are those of one that sends to itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.images import ALPHA, BURST, CLASSES, B, burst, crop_flip_normalise, images_on_gpu, memory_floor
from benchmarks.timing import in_turns
from degp import Categorical, Ensemble, methods
from degp.nets import lite_resnet_features, resnet
from degp.priors import MonteCarloNNGP
from degp.runtime.distributed import ALONE, Mesh, loopback
from degp.runtime.execution import Compiled, Grouped
from degp.training import Eager, TrainState, adam
from degp.training.graphs import CapturedStep
from degp.vision import context_images

M, COUNT = 10, 32
Step = Callable[[], object]


def run() -> list[dict[str, Any]]:
    """Milliseconds per step; each divided by DE's, and with context images by the same without."""
    torch.backends.cudnn.benchmark = True
    ensemble = Ensemble(lambda: resnet(20, CLASSES), M, execution=Compiled(Grouped())).cuda()  # compiled once for all
    rows = _measured(_on_one_rank, ensemble)
    for row in rows:
        print(row, flush=True)  # not lost, if messages hang
    return rows + _measured(_on_many_ranks, ensemble)


Cases = Callable[[Ensemble], dict[str, Callable[[], Step]]]  # steps by name, each made and captured when it is called


def _measured(cases: Cases, ensemble: Ensemble) -> list[dict[str, Any]]:
    steps: dict[str, Step] = {}
    failures: dict[str, str] = {}
    for name, make in cases(ensemble).items():
        try:
            steps[name] = make()
        except Exception as error:  # what cannot be captured is part of the table
            failures[name] = str(error).splitlines()[0]
    times = in_turns({name: partial(burst, step, BURST) for name, step in steps.items()}, rounds=9)
    rows = [_row(name, {key: time / BURST for key, time in times.items()}) for name in steps]
    return rows + [{"step": f"{name}: {reason}"} for name, reason in failures.items()]


def _on_one_rank(ensemble: Ensemble) -> dict[str, Callable[[], Step]]:
    captured = partial(_captured, ensemble)
    return {
        "DE": partial(captured, lambda: methods.de(Categorical(learned=True))),
        "DE-GP, prior of 20 layers": partial(captured, partial(_degp, 20)),
        "DE-GP, prior of 8 layers": partial(captured, partial(_degp, 8)),
        "DE-GP, prior of 8 layers, five networks": partial(captured, partial(_degp, 8, 5)),
        "DE-GP, prior of 8 layers, context": partial(captured, partial(_degp, 8, measurement=context_images(COUNT))),
        "DE-GP, prior of 8 layers, uncaptured": partial(_eager, ensemble, partial(_degp, 8), ALONE),
    }


def _on_many_ranks(ensemble: Ensemble) -> dict[str, Callable[[], Step]]:
    return {
        "DE-GP, prior of 8 layers, torchrun, captured": lambda: _captured(
            ensemble, partial(_degp, 8), loopback("cuda")
        ),
        "DE-GP, prior of 8 layers, torchrun, uncaptured": lambda: _eager(ensemble, partial(_degp, 8), loopback("cuda")),
    }


def _degp(depth: int, num_draws: int = 10, **options: Any) -> methods.DEGP:
    prior = MonteCarloNNGP(lite_resnet_features(depth), num_draws=num_draws)
    return methods.degp(Categorical(learned=True), prior, alpha=ALPHA, beta=0.1, **options)


def _row(name: str, milliseconds: dict[str, float]) -> dict[str, Any]:
    time, without = milliseconds[name], milliseconds.get(name.split(", context")[0])
    return {
        "step": name,
        "ms": time,
        "ratio to DE": time / milliseconds["DE"] if "DE" in milliseconds else "",
        "ratio to no context": time / without if without and "context" in name else "",
        "× the floor by memory traffic": time / memory_floor(20, M),
    }


def _state(ensemble: Ensemble, method: methods.Built, mesh: Mesh) -> TrainState:
    own = Ensemble(ensemble._stack(), execution=ensemble.execution)  # the same weights and compiled network
    own.mesh = mesh
    rate = torch.tensor(1e-3, device="cuda")
    weights = torch.optim.SGD(own.parameters(), lr=rate, momentum=0.9, fused=True)
    generator = torch.Generator("cuda").manual_seed(1)
    return TrainState(own, method, [weights, adam(list(method.parameters()), 1e-3)], [], generator)


def _captured(ensemble: Ensemble, make_method: Callable[[], methods.Built], mesh: Mesh = ALONE) -> Step:
    state = _state(ensemble, make_method().cuda(), mesh)
    step = CapturedStep(state, images_on_gpu(), B, transform=crop_flip_normalise(), precision=torch.bfloat16)
    rows = torch.arange(B, device="cuda")
    return lambda: step(rows)


def _eager(ensemble: Ensemble, make_method: Callable[[], methods.Built], mesh: Mesh) -> Step:
    state = _state(ensemble, make_method().cuda(), mesh)
    data = images_on_gpu()
    advance = Eager(crop_flip_normalise(), precision=torch.bfloat16, even=True).start(state, data, B)
    rows = torch.arange(B, device="cuda")
    return lambda: advance(rows)
