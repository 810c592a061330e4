"""Ten ResNet-20s on a GPU: what a step of DE-GP costs by its prior, its divergence and its context images.

One optimiser step on 128 images, in bf16, compiled and captured. The prior has 8 layers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.images import ALPHA, BURST, CLASSES, B, burst, crop_flip_normalise, images_on_gpu, memory_floor
from benchmarks.timing import in_turns
from degp import BatchPart, Categorical, Ensemble, methods
from degp.measurement import BatchAndMeasurement, Domain, no_points
from degp.nets import lite_resnet_features, resnet
from degp.priors import MonteCarloNNGP
from degp.runtime.distributed import ALONE, Mesh
from degp.runtime.execution import Compiled, Grouped
from degp.training import TrainState, adam
from degp.training.graphs import CapturedStep
from degp.vision import PriorNetworks, context_images

M, ROUNDS, CONTEXT = 10, 7, 32
EVERYWHERE = BatchAndMeasurement()
Step = Callable[[], object]
Make = Callable[[], Step]  # makes and captures a step


@dataclass(frozen=True)
class Setting:
    """What varies between steps of DE-GP; the defaults are those of `Recipe`, without context."""

    draws: int = 5
    resolution: int | None = None
    domain: Domain = EVERYWHERE
    context: int = 0

    def method(self) -> methods.DEGP:
        networks = PriorNetworks(partial(lite_resnet_features, 8), resolution=self.resolution)
        return methods.degp(
            Categorical(learned=True),
            MonteCarloNNGP(networks.features(), num_draws=self.draws),
            alpha=ALPHA,
            beta=0.1,
            measurement=context_images(self.context) if self.context else no_points,
            domain=self.domain,
        )


MOST_COMPILATIONS = 64  # of one network: beyond torch's own limit of 8, later settings would run uncompiled
SETTINGS = {
    "ten prior networks": Setting(draws=10),
    "five": Setting(),
    "two": Setting(draws=2),
    "ten, 16 × 16 pixels": Setting(draws=10, resolution=16),
    "five, 16 × 16 pixels": Setting(resolution=16),
    "five, 64 images": Setting(domain=BatchPart(64)),
    "five, 16 × 16 pixels, 64 images": Setting(resolution=16, domain=BatchPart(64)),
    "five, context": Setting(context=CONTEXT),
    "five, 16 × 16 pixels, context": Setting(resolution=16, context=CONTEXT),
    "five, 16 × 16 pixels, 64 images, context": Setting(resolution=16, domain=BatchPart(64), context=CONTEXT),
}


def run() -> list[dict[str, Any]]:
    """Milliseconds per step; each divided by DE's, and with context images by the same without."""
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.recompile_limit = MOST_COMPILATIONS
    ensemble = resnets()
    cases: dict[str, Make] = {"DE": partial(captured, ensemble, de)}
    cases |= {f"DE-GP, {name}": partial(captured, ensemble, setting.method) for name, setting in SETTINGS.items()}
    cases[f"DE, {B + CONTEXT} images"] = partial(captured, ensemble, de, batch_size=B + CONTEXT)
    return measured(cases)


def resnets() -> Ensemble:
    """The ensemble of all steps, compiled once."""
    return Ensemble(lambda: resnet(20, CLASSES), M, execution=Compiled(Grouped())).cuda()


def de() -> methods.Memberwise:
    """What DE-GP is compared with."""
    return methods.de(Categorical(learned=True))


def measured(cases: Mapping[str, Make]) -> list[dict[str, Any]]:
    """A row per step, timed in turns; and a row per step that cannot be made, with the reason."""
    steps: dict[str, Step] = {}
    failures: dict[str, str] = {}
    for name, make in cases.items():
        try:
            steps[name] = make()
            print(f"captured: {name}", flush=True)  # shows progress, should a later one hang
        except Exception as error:  # what cannot be captured is part of the table
            failures[name] = str(error).splitlines()[0]
    times = in_turns({name: partial(burst, step, BURST) for name, step in steps.items()}, rounds=ROUNDS)
    rows = [_row(name, {key: time / BURST for key, time in times.items()}) for name in steps]
    return rows + [{"step": f"{name}: {reason}"} for name, reason in failures.items()]


def _row(name: str, milliseconds: dict[str, float]) -> dict[str, Any]:
    time, without = milliseconds[name], milliseconds.get(name.split(", context")[0])
    return {
        "step": name,
        "ms": time,
        "ratio to DE": time / milliseconds["DE"] if "DE" in milliseconds else "",
        "ratio to no context": time / without if without and "context" in name else "",
        "× the floor by memory traffic": time / memory_floor(20, M),
    }


def training_state(ensemble: Ensemble, method: methods.Built, mesh: Mesh) -> TrainState:
    """A run of its own on the same weights and compiled network."""
    own = Ensemble(ensemble._stack(), execution=ensemble.execution)
    own.mesh = mesh
    rate = torch.tensor(1e-3, device="cuda")
    weights = torch.optim.SGD(own.parameters(), lr=rate, momentum=0.9, fused=True)
    generator = torch.Generator("cuda").manual_seed(1)
    return TrainState(own, method, [weights, adam(list(method.parameters()), 1e-3)], [], generator)


def captured(
    ensemble: Ensemble, make_method: Callable[[], methods.Built], mesh: Mesh = ALONE, batch_size: int = B
) -> Step:
    """A step as CUDA graphs."""
    state = training_state(ensemble, make_method().cuda(), mesh)
    step = CapturedStep(state, images_on_gpu(), batch_size, transform=crop_flip_normalise(), precision=torch.bfloat16)
    rows = torch.arange(batch_size, device="cuda")
    return lambda: step(rows)
