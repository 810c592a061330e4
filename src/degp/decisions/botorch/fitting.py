"""Fits an ensemble to observations in the unit cube: MAP scales, output layers in closed form, then DE-GP training."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp import methods
from degp.decisions.botorch.stationary import FourierFeatures, SquaredExponential, draw_readouts, map_prior
from degp.ensemble import Ensemble
from degp.likelihoods import Gaussian
from degp.measurement import UniformBox
from degp.methods import Method
from degp.training import fit
from degp.typing import Batch

__all__ = ["FitConfig", "FittedEnsemble", "fit_ensemble"]


@dataclass(frozen=True)
class FitConfig:
    """Sizes and optimiser settings of `DEGPModel.fit`.

    Attributes:
        members: M, output layers on one shared hidden layer. The covariance has rank M − 1.
        units: of the hidden layer, a cosine and a sine each.
        measurement_points: per step, drawn from the search region. At most half of `members`: a covariance of rank M
            cannot match the prior's variance at many more than M points, and training would shrink it everywhere
            instead (theory/stationary.md (5)).
        steps: of Adam on all data, with a cosine learning-rate schedule.
        learning_rate: initial. Small, since members start near the posterior: a larger rate would perturb thousands
            of output weights by more than the error bars near the data.
        epsilon: ε, λ and the prior's jitter as shares of the mean variance.

    Example:
        >>> from degp.decisions.botorch import DEGPModel
        >>> config = FitConfig(members=16, units=64, measurement_points=8, steps=10)
        >>> model = DEGPModel.fit(X, Y, bounds=bounds, config=config)
    """

    members: int = 128
    units: int = 1024
    measurement_points: int = 64
    steps: int = 50
    learning_rate: float = 1e-4
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        for name, least in (("members", 2), ("units", 1), ("measurement_points", 1), ("steps", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but it is {getattr(self, name)}")


@dataclass(frozen=True)
class FittedEnsemble:
    """Members in float64, the method that trained them and its prior."""

    ensemble: Ensemble
    method: Method
    prior: SquaredExponential


def fit_ensemble(
    data: Batch, config: FitConfig, *, start: FittedEnsemble | None = None, generator: torch.Generator
) -> FittedEnsemble:
    """Members drawn from the posterior given their hidden layer, then trained as one Gaussian process.

    Args:
        data: inputs in the unit cube and standardised targets.
        start: keeps the hidden layer of an earlier fit, rescaled to the new length scales.
    """
    prior = map_prior(data)
    centred = Batch(data.inputs.double(), data.targets.double() - prior.constant)
    features = FourierFeatures(_frequencies(prior, config.units, start, generator))
    readouts = draw_readouts(features, centred, prior.noise_variance, config.members, generator=generator)
    ensemble = Ensemble([_head(weights) for weights in readouts], backbone=features)
    method = methods.degp(
        Gaussian(prior.noise_variance),
        prior,
        measurement=UniformBox(0.0, 1.0, config.measurement_points),
        epsilon=config.epsilon,
    )
    _train(ensemble.float(), centred.to(dtype=torch.float32), method, config, generator)  # float32: twice as fast
    return FittedEnsemble(_with_constant(ensemble.double(), prior.constant), method, prior)


def _frequencies(
    prior: SquaredExponential, units: int, start: FittedEnsemble | None, generator: torch.Generator
) -> Float[Tensor, "units D"]:
    if start is None:
        shape = units, len(prior.length_scales)
        normal = torch.randn(shape, dtype=torch.float64, device=generator.device, generator=generator)
        return normal / prior.length_scales
    assert isinstance(start.ensemble.backbone, FourierFeatures)
    return start.ensemble.backbone.frequencies.detach() * (start.prior.length_scales / prior.length_scales)


def _head(weights: Float[Tensor, "F C"]) -> nn.Linear:
    """An output layer with these weights; its bias stays 0 in training, where the targets are centred."""
    head = nn.Linear(*weights.shape).to(weights)
    head.weight.data.copy_(weights.mT)
    nn.init.zeros_(head.bias.requires_grad_(False))
    return head


def _train(ensemble: Ensemble, centred: Batch, method: Method, config: FitConfig, generator: torch.Generator) -> None:
    weights = [parameter for parameter in ensemble.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=config.learning_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, config.steps))
    fit(
        ensemble,
        centred,
        method,
        epochs=config.steps,
        optimizer=optimizer,
        scheduler=scheduler,
        generator=generator,
        progress=False,
    )


@torch.no_grad()
def _with_constant(ensemble: Ensemble, constant: Float[Tensor, "C"]) -> Ensemble:
    """The trained members with c added back to their biases."""
    ensemble.parts()[0].parameters["bias"].copy_(constant)
    return ensemble.requires_grad_(False)
