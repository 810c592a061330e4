"""From observations in the unit cube to an ensemble: scales by evidence, read-outs in closed form, then DE-GP."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp import objectives
from degp.botorch.stationary import SquaredExponential, Waves, draw_readouts, most_probable_prior
from degp.ensemble import Ensemble
from degp.likelihoods import Gaussian
from degp.measurement import UniformBox
from degp.training import fit
from degp.typing import Batch


@dataclass(frozen=True)
class Training:
    """Sizes and steps of `DEGPModel.fit`.

    Attributes:
        members: M, read-outs of one shared hidden layer. The covariance has rank M − 1.
        units: of the hidden layer, a cosine and a sine each.
        extra_points: where posterior and prior meet besides the data, drawn anew each step from the search region.
            Half of `members` or fewer: a covariance of rank M cannot fill the prior's variance at many more than M
            points, and training would make it smaller everywhere instead (theory/stationary.md (5)).
        steps: of Adam, on all data at once; its learning rate falls to 0 as a cosine.
        learning_rate: where it starts. Small, since the start is close: a larger one would shake thousands of read-out
            weights by more than the error bars near the data are wide.
        epsilon: λ and the prior's jitter, as shares of the mean variance.
    """

    members: int = 128
    units: int = 1024
    extra_points: int = 64
    steps: int = 50
    learning_rate: float = 1e-4
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        for name, least in (("members", 2), ("units", 1), ("extra_points", 1), ("steps", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but it is {getattr(self, name)}")


@dataclass(frozen=True)
class Trained:
    """Members in float64, and the prior that they were trained under."""

    ensemble: Ensemble
    prior: SquaredExponential


def train(data: Batch, training: Training, *, start: Trained | None = None, generator: torch.Generator) -> Trained:
    """Members that start as posterior draws, given their hidden layer, and are then trained as one Gaussian process.

    Args:
        data: inputs in the unit cube and standardised targets.
        start: an ensemble whose hidden layer is kept, stretched to the new lengths; by default it is drawn.
    """
    prior = most_probable_prior(data)
    centred = Batch(data.inputs.double(), data.targets.double() - prior.constant)
    waves = Waves(_frequencies(prior, training.units, start, generator))
    readouts = draw_readouts(waves, centred, prior.noise_variance, training.members, generator=generator)
    ensemble = Ensemble([_head(weights) for weights in readouts], backbone=waves)
    _fit(ensemble.float(), centred.to(dtype=torch.float32), prior, training, generator)  # float32: twice as fast
    return Trained(_with_constant(ensemble.double(), prior.constant), prior)


def _frequencies(
    prior: SquaredExponential, units: int, start: Trained | None, generator: torch.Generator
) -> Float[Tensor, "units D"]:
    if start is None:
        normal = torch.randn(
            units, len(prior.lengths), dtype=torch.float64, device=generator.device, generator=generator
        )
        return normal / prior.lengths
    assert isinstance(start.ensemble.backbone, Waves)
    return start.ensemble.backbone.frequencies.detach() * (start.prior.lengths / prior.lengths)


def _head(weights: Float[Tensor, "F C"]) -> nn.Linear:
    """A read-out with these weights; its bias is 0 and stays so in training, where the targets are centred."""
    head = nn.Linear(*weights.shape).to(weights)
    head.weight.data.copy_(weights.mT)
    nn.init.zeros_(head.bias.requires_grad_(False))
    return head


def _fit(
    ensemble: Ensemble, centred: Batch, prior: SquaredExponential, training: Training, generator: torch.Generator
) -> None:
    extra = UniformBox(0.0, 1.0, training.extra_points)
    weights = [parameter for parameter in ensemble.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=training.learning_rate)
    fit(
        ensemble,
        centred,
        objectives.degp(Gaussian(prior.noise_variance), prior, measurement=extra, epsilon=training.epsilon),
        epochs=training.steps,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, training.steps)),
        generator=generator,
        progress=False,
    )


@torch.no_grad()
def _with_constant(ensemble: Ensemble, constant: Float[Tensor, "C"]) -> Ensemble:
    """The finished members, c put back into their biases."""
    ensemble.parts()[0].parameters["bias"].copy_(constant)
    return ensemble.requires_grad_(False)
