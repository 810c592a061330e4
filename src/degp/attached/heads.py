"""Heads on the features of a network: drawn from the prior, trained, and calibrated on held-out points."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from degp.calibration import calibrate_cautiously
from degp.data.splits import hold_out_rows
from degp.ensemble import Ensemble
from degp.likelihoods import Categorical, Gaussian
from degp.methods import DEGP, Method, with_likelihood
from degp.methods.contract import as_module
from degp.nets import mlp
from degp.prediction import evaluate
from degp.priors.evidence import Scales
from degp.training import Captured, Eager, History, Plan, adam, fit
from degp.training.plan import FINISH_RATE, FINISH_STEPS
from degp.training.schedules import EachStep
from degp.typing import Batch

__all__ = ["draw_heads", "train_calibrated", "train_heads"]

RATE = 3e-3
HELD_OUT = 0.15  # of the points, to fit the temperature


def draw_heads(
    scales: Scales,
    members: int,
    width: int,
    outputs: int,
    *,
    backbone: nn.Module | None = None,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> Ensemble:
    """Heads with one hidden layer, drawn from the prior of these scales, on the backbone or on its features."""
    prior, inputs = scales.weight_prior(), len(scales.relevance)
    where = {"device": device} if backbone is None else _kind(backbone)

    def make() -> nn.Module:
        return prior.initialise(mlp(inputs, [width], outputs).to(**where), generator=generator)

    return Ensemble(make, members, backbone=backbone)


def train_heads(
    heads: Ensemble,
    points: Batch,
    method: Method,
    *,
    steps: int,
    rate: float = RATE,
    batch_size: int = 128,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> History:
    """Trains heads on cached features by Adam with a cosine schedule, up to whole epochs; on a GPU as CUDA graphs."""
    trained = [p for part in (heads, as_module(method)) for p in part.parameters() if p.requires_grad]
    optimizer = adam(trained, rate, fused=True)
    size = min(batch_size, len(points))
    on_gpu = points.device.type == "cuda"
    batches = len(points) // size if on_gpu else -(-len(points) // size)
    epochs = -(-steps // batches)
    total = max(1, epochs * batches)
    return fit(
        heads,
        points,
        method,
        Plan(epochs, size, stepping=Captured() if on_gpu else Eager()),
        optimizer=optimizer,
        scheduler=EachStep(LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / total)))),
        generator=generator,
        progress=progress,
    )


def train_calibrated(
    heads: Ensemble, points: Batch, method: DEGP, held_out: Batch | None = None, *, steps: int, **options: Any
) -> None:
    """Trains heads, and fits noise variances or the temperature on points that they were not trained on.

    Without such points, the noise is the one learned in training. For classes, a part is held out: heads are trained
    without it, the temperature is fitted, and the last steps are on all points.

    Args:
        steps: before these last ones.
        options: of `train_heads`.
    """
    if held_out is not None or not isinstance(method.likelihood, Categorical):
        train_heads(heads, points, method, steps=steps, **options)
        if held_out is not None:
            _calibrate(method, evaluate(heads, held_out.inputs), held_out)
        return
    seed = int(torch.randint(2**31, (), generator=options["generator"], device=points.device))
    known, rest = hold_out_rows(points, HELD_OUT, generator=torch.Generator(points.device).manual_seed(seed))
    train_heads(heads, known, method, steps=steps, **options)
    _calibrate(method, evaluate(heads, rest.inputs), rest)
    train_heads(heads, points, method, steps=math.ceil(FINISH_STEPS * steps), rate=FINISH_RATE * RATE, **options)


@torch.no_grad()
def _calibrate(method: DEGP, outputs: Float[Tensor, "M N C"], points: Batch) -> None:
    """The temperature, or one noise variance per target."""
    likelihood = method.likelihood
    if not isinstance(likelihood, Gaussian):
        calibrate_cautiously(method, outputs, points.targets, points.weights)
        return
    for c, variance in enumerate(likelihood.variance.tolist()):
        units = [float(likelihood.offset[c])], [float(likelihood.unit[c])]
        own = with_likelihood(method, Gaussian([variance], units=units).to(outputs.device))
        factor = calibrate_cautiously(own, outputs[..., [c]], points.targets[:, [c]], points.weights)
        likelihood.log_variance[c] += math.log(factor)


def _kind(module: nn.Module) -> dict[str, Any]:
    """Device and dtype of a module's last parameters, which are those of its outputs."""
    *_, like = module.parameters()
    return {"device": like.device, "dtype": like.dtype}
