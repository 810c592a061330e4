"""Two hundred heads on 4,000 features of a network: seconds of training, and of all that `attach` does."""

import time
from typing import Any

import torch
from torch import nn

from degp import Batch, attach, methods
from degp.attached.components import scaled_components
from degp.attached.heads import draw_heads, train_heads
from degp.likelihoods import Categorical
from degp.metrics import nll
from degp.prediction import predict
from degp.priors.labels import as_real

POINTS, NEW, FEATURES, CLASSES, MEMBERS = 4000, 2000, 1280, 10, 200


def run() -> list[dict[str, Any]]:
    """Synthetic features of EfficientNet's size with a decaying spectrum; 128 components, heads 128-256-10."""
    known, new = _points(POINTS, seed=1), _points(NEW, seed=2)
    return [_training(known, new), _attaching(known, new)]


def _training(known: Batch, new: Batch) -> dict[str, Any]:
    """Training alone, on components that are there."""
    real = Batch(known.inputs, as_real(known.targets, CLASSES))
    projection, scales = scaled_components(real, 128, generator=_seeded())
    heads = draw_heads(scales, MEMBERS, 256, CLASSES, generator=_seeded())
    method = methods.degp(Categorical(), scales.nngp())
    inputs, points = (projection(part.inputs).detach() for part in (known, new))
    with _Seconds() as seconds:
        train_heads(heads, Batch(inputs, known.targets), method, steps=2000, generator=_seeded(), progress=False)
    probabilities = predict(heads, points, method, generator=_seeded()).probabilities
    return {"work": "training", **seconds.found, "NLL of new points": nll(probabilities, new.targets)}


def _attaching(known: Batch, new: Batch) -> dict[str, Any]:
    """The same with components, scales, calibration and the last steps on all points."""
    network = nn.Sequential(nn.Linear(FEATURES, CLASSES))
    with _Seconds() as seconds:
        attached = attach(network, known, members=MEMBERS, generator=_seeded(), progress=False)
    probabilities = attached.predict(new.inputs, generator=_seeded()).probabilities
    return {"work": "attach", **seconds.found, "NLL of new points": nll(probabilities, new.targets)}


class _Seconds:
    """Seconds of a block, and those of the CPU, which other programs change less."""

    def __enter__(self) -> "_Seconds":
        self.before = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        wall, cpu = self.before
        self.found = {"seconds": time.perf_counter() - wall, "CPU seconds": time.process_time() - cpu}


def _points(count: int, seed: int) -> Batch:
    """Classes around centres, in directions of variance 1/d, as non-negative features."""
    fixed, own = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    spread = torch.arange(1, FEATURES + 1).float().rsqrt()
    directions = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=fixed)).Q
    centres = torch.randn(CLASSES, FEATURES, generator=fixed)
    labels = torch.randint(CLASSES, (count,), generator=own)
    noise = 3 * torch.randn(count, FEATURES, generator=own)
    return Batch(((centres[labels] + noise) * spread @ directions).relu(), labels)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)
