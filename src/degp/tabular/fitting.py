"""From standardised rows to a trained, calibrated ensemble: what the estimators do, in tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp import methods
from degp.calibration import calibrate_cautiously, calibrated_nll, weighted_mean
from degp.ensemble import Ensemble
from degp.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from degp.measurement import MeasurementSampler, UniformBox, no_points
from degp.methods import Built, Kind, Method
from degp.nets import mlp
from degp.prediction import evaluate
from degp.priors.evidence import Scales, most_likely_scales
from degp.runtime.cpu import measured_threads
from degp.runtime.distributed import ALONE, Mesh
from degp.training import Captured, Eager, History, Plan, Stepping, adam, fit
from degp.training.stepping import Timed
from degp.typing import Batch

__all__ = [
    "Fitted",
    "TableConfig",
    "fit_table",
    "initial",
    "likelihood_for",
    "method_for",
    "network_for",
    "scales_for",
    "stepping_for",
]

CONSTANT, INPUT_DEPENDENT = "constant", "input-dependent"
SCORING_DRAWS = 256


@dataclass(frozen=True)
class TableConfig:
    """What is trained on a table; a `Plan` says how.

    Attributes:
        method: DE-GP or one of its baselines.
        hidden_layers: widths of each member's hidden layers.
        members: M.
        alpha: for DE-GP, the weight of the divergence in units of Bayes' weight.
        measurement_points: per step besides the batch, uniform over the region of the data.
        epsilon: λ and jitter of DE-GP, as a share of the mean variance.
        noise: "constant" or "input-dependent", for real targets.
        learning_rate: of Adam, × 0.99 every 5 epochs.
    """

    method: Kind = Kind.DEGP
    hidden_layers: tuple[int, ...] = (64, 64)
    members: int = 16
    alpha: float = 1.0
    measurement_points: int = 64
    epsilon: float = 0.05
    noise: str = CONSTANT
    learning_rate: float = 0.01

    def __post_init__(self) -> None:
        if self.noise not in (CONSTANT, INPUT_DEPENDENT):
            raise ValueError(f"noise must be {CONSTANT!r} or {INPUT_DEPENDENT!r}, but it is {self.noise!r}")
        if not self.alpha >= 0:
            raise ValueError(f"alpha must not be negative, but it is {self.alpha}")
        if self.members < 2:
            raise ValueError(f"members must be at least 2, but it is {self.members}")


@dataclass(frozen=True)
class Fitted:
    """A trained ensemble with its calibrated method and the history of the fit."""

    ensemble: Ensemble
    method: Method
    validation_nll: float
    history: History


def fit_table(
    train: Batch,
    validation: Batch,
    num_classes: int | None,
    config: TableConfig,
    scales: Scales,
    plan: Plan,
    *,
    mesh: Mesh = ALONE,
    generator: torch.Generator,
    progress: bool | None = None,
) -> Fitted:
    """Trains one ensemble under a prior of these scales, and calibrates it on the validation rows.

    Args:
        train: inputs (N, D), standardised and times their relevance; standardised targets (N, C), or labels (N,).
        validation: rows in the same units, which select the epoch and calibrate the noise or temperature.
        num_classes: None for real targets.
        plan: its early stopping reads "validation/nll".
        mesh: the ranks that the members are distributed over; every rank returns the whole ensemble.
    """
    _check_ranks(config.members, mesh)
    whole, method = initial(train, num_classes, config, scales, generator=generator)
    ensemble = whole.split(mesh)
    trained = [p for p in (*ensemble.parameters(), *method.parameters()) if p.requires_grad]
    optimizer = adam(trained, config.learning_rate)
    with measured_threads() as trial:
        history = fit(
            ensemble,
            train,
            method,
            replace(plan, stepping=Timed(plan.stepping, trial)),
            optimizer=optimizer,
            scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.99),
            validation=lambda members: {"nll": _score(members, method, validation)},
            generator=generator,
            progress=progress,
        )
    whole = ensemble.whole().eval()
    nll = _score(whole, method, validation)
    calibrate_cautiously(method, evaluate(whole, validation.inputs), validation.targets, validation.weights)
    return Fitted(whole, method, nll, history)


def scales_for(train: Batch, num_classes: int | None, config: TableConfig, *, generator: torch.Generator) -> Scales:
    """The prior's scales by evidence; the relevance of each feature is to be applied to all inputs."""
    targets, depth = _as_real(train, num_classes), len(config.hidden_layers)
    return most_likely_scales(train.inputs, targets, depth, weights=train.weights, generator=generator)


def initial(
    train: Batch, num_classes: int | None, config: TableConfig, scales: Scales, *, generator: torch.Generator
) -> tuple[Ensemble, Built]:
    """Where training starts: members drawn from the prior of these scales, and the method."""
    ensemble = _initial_ensemble(train, num_classes, config, scales, generator)
    likelihood = likelihood_for(num_classes, config.noise, scales.noise_variance)
    count = config.measurement_points
    measurement = UniformBox.around(train.inputs, count) if count else no_points
    method = method_for(config, likelihood, ensemble, scales, measurement, generator=generator)
    return ensemble, method.to(train.inputs.device)


def method_for(
    config: TableConfig,
    likelihood: Likelihood,
    ensemble: Ensemble,
    scales: Scales,
    measurement: MeasurementSampler = no_points,
    *,
    generator: torch.Generator,
) -> Built:
    """The method of the configuration, with a prior of these scales."""

    def functional() -> Built:
        return methods.degp(
            likelihood, scales.nngp(), alpha=config.alpha, measurement=measurement, epsilon=config.epsilon
        )

    return config.method.build(likelihood, ensemble, scales.weight_prior(), functional=functional, generator=generator)


def likelihood_for(num_classes: int | None, noise: str, noise_variance: float) -> Likelihood:
    """The likelihood of a table's target, its noise or temperature learned."""
    if num_classes is not None:
        return Categorical(learned=True, num_draws=64)
    if noise == CONSTANT:
        return Gaussian(noise_variance, learned=True)
    return HeteroscedasticGaussian(noise_variance)


def network_for(
    num_features: int, num_targets: int, num_classes: int | None, hidden_layers: Sequence[int], noise: str
) -> nn.Module:
    """One member: an MLP with one output per class or target; two per target where the noise depends on the input."""
    if num_classes is not None:
        return mlp(num_features, hidden_layers, num_classes)
    return mlp(num_features, hidden_layers, num_targets * (2 if noise == INPUT_DEPENDENT else 1))


def stepping_for(device: str, mesh: Mesh) -> Stepping:
    """On a GPU a step is hundreds of small operations: one graph."""
    return Captured() if device.startswith("cuda") and mesh.world.size == 1 else Eager()


@torch.no_grad()
def _score(ensemble: Ensemble, method: Method, validation: Batch) -> float:
    """The validation NLL that the model would have after calibration."""
    outputs = evaluate(ensemble, validation.inputs)
    generator = torch.Generator(outputs.device).manual_seed(0)  # common random numbers: epochs are compared
    predictive = method.predictive(outputs, num_draws=SCORING_DRAWS, generator=generator)
    nll = calibrated_nll(predictive, validation.targets, validation.weights)
    return float(weighted_mean(nll, validation.weights))


def _check_ranks(members: int, mesh: Mesh) -> None:
    if members < mesh.members.size:
        raise ValueError(
            f"there must be at least one member per rank, but there are {members} members for {mesh.members.size} "
            f"ranks; start fewer ranks, or train more members"
        )


def _initial_ensemble(
    data: Batch, num_classes: int | None, config: TableConfig, scales: Scales, generator: torch.Generator
) -> Ensemble:
    """Members drawn from the prior over weights."""
    num_targets = 1 if data.targets.ndim == 1 else data.targets.shape[1]
    weight_prior = scales.weight_prior()

    def make() -> nn.Module:
        network = network_for(data.inputs.shape[1], num_targets, num_classes, config.hidden_layers, config.noise)
        weight_prior.initialise(network.to(generator.device), generator=generator)
        if num_classes is None and config.noise == INPUT_DEPENDENT:
            _damp_log_noise(network, num_targets, data.inputs, scales)
        return network

    return Ensemble(make, config.members)


@torch.no_grad()
def _damp_log_noise(network: nn.Module, num_targets: int, inputs: Float[Tensor, "N D"], scales: Scales) -> None:
    """Starts the outputs for the log noise with a standard deviation of at most one: E eˢ must not overflow."""
    variance = float(scales.nngp()(inputs[:64], inputs[:64]).diagonal().mean())
    *_, readout = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
    for parameter in readout.parameters():
        parameter[num_targets:] /= max(1.0, variance) ** 0.5


def _as_real(train: Batch, num_classes: int | None) -> Float[Tensor, "N C"]:
    """Targets for the evidence: themselves, or one centred column per class, scaled as logits."""
    if num_classes is None:
        return train.targets
    onehot = torch.nn.functional.one_hot(train.targets, num_classes).double()
    return 4 * (onehot - weighted_mean(onehot.mT, train.weights))
