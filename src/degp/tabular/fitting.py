"""From standardised rows to a trained, calibrated ensemble: what the estimators do, in tensors."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp import methods
from degp.calibration import calibrate_cautiously, calibrated_nll, weighted_mean
from degp.ensemble import Ensemble
from degp.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from degp.measurement import MeasurementSampler, UniformBox, no_points
from degp.methods import Built, Kind, Method
from degp.nets import Erf, mlp
from degp.prediction import evaluate
from degp.predictive import Predictive
from degp.priors.evidence import Scales
from degp.runtime.cpu import measured_threads
from degp.runtime.distributed import ALONE, Mesh
from degp.training import Captured, Checkpoints, Eager, EarlyStopping, History, Plan, Stepping, adam, fit
from degp.training.plan import FINISH_RATE, FINISH_STEPS
from degp.training.stepping import Timed
from degp.typing import Batch, joined

__all__ = [
    "Budget",
    "Fitted",
    "TableConfig",
    "fit_table",
    "initial",
    "likelihood_for",
    "method_for",
    "network_for",
    "stepping_for",
]

CONSTANT, INPUT_DEPENDENT = "constant", "input-dependent"
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "erf": Erf}
SCORING_DRAWS = 256
PROGRESS = 0.15  # √N times the NLL that counts as progress on N validation rows: a fifth of a standard error
PATIENCE = 0.3  # of the epochs, without progress
BATCHES_PER_EPOCH = 25
CHECKPOINT_STEPS, CHECKPOINT_SECONDS = 1000, 10.0  # whichever comes first
NOISE_FLOOR = 0.8  # of the noise by evidence: on a batch the divergence undercounts what is local, and noise is fitted


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
        learning_rate: of Adam, at first; it falls to zero by a cosine.
        exact_rows: of the exact process, which also predicts.
    """

    method: Kind = Kind.DEGP
    hidden_layers: tuple[int, ...] = (64, 64)
    members: int = 16
    alpha: float = 1.0
    measurement_points: int = 64
    epsilon: float = 0.005
    noise: str = CONSTANT
    learning_rate: float = 0.01
    exact_rows: int = 2000

    def __post_init__(self) -> None:
        if self.noise not in (CONSTANT, INPUT_DEPENDENT):
            raise ValueError(f"noise must be {CONSTANT!r} or {INPUT_DEPENDENT!r}, but it is {self.noise!r}")
        if not self.alpha >= 0:
            raise ValueError(f"alpha must not be negative, but it is {self.alpha}")
        if self.members < 2:
            raise ValueError(f"members must be at least 2, but it is {self.members}")


@dataclass(frozen=True)
class Budget:
    """How long a table is trained on, and how.

    Attributes:
        steps: of the optimiser.
        batch_size: rows per step.
        max_seconds: end training after this time.
        stepping: see `Plan`.
        checkpoints: the folder of an interrupted fit.
    """

    steps: int
    batch_size: int = 256
    max_seconds: float | None = None
    stepping: Stepping = field(default_factory=Eager)
    checkpoints: Checkpoints | None = None

    def plan(self, rows: int, early_stopping: EarlyStopping | None = None) -> Plan:
        """The plan of a fit to this many rows: epochs of about 25 steps."""
        batches = -(-rows // self.batch_size)
        size = rows // batches if self.stepping.even else self.batch_size
        per_epoch = BATCHES_PER_EPOCH if batches > BATCHES_PER_EPOCH else BATCHES_PER_EPOCH // batches * batches
        return Plan(
            max(1, round(self.steps / per_epoch)),
            size,
            batches_per_epoch=BATCHES_PER_EPOCH,
            early_stopping=early_stopping,
            max_seconds=self.max_seconds,
            stepping=self.stepping,
            checkpoints=self.checkpoints,
            resume=True,
        )

    def first(self) -> "Budget":
        """What is left for training before the last steps on all rows."""
        seconds = None if self.max_seconds is None else self.max_seconds / (1 + FINISH_STEPS)
        return replace(self, max_seconds=seconds)

    def last(self, seconds_used: float) -> "Budget":
        """What is left for the last steps on all rows."""
        seconds = None if self.max_seconds is None else max(self.max_seconds - seconds_used, 0.1)
        own = self.checkpoints and replace(self.checkpoints, folder=Path(self.checkpoints.folder) / "last")
        return replace(self, steps=math.ceil(FINISH_STEPS * self.steps), max_seconds=seconds, checkpoints=own)


@dataclass(frozen=True)
class Fitted:
    """A trained ensemble with its calibrated method.

    Attributes:
        validation_nll: the mean NLL of the validation rows before the last steps; NaN without such rows.
        held_out: the predictive distribution of the validation rows, before the last steps.
        history: of all epochs.
    """

    ensemble: Ensemble
    method: Method
    validation_nll: float
    held_out: Predictive | None
    history: History


def fit_table(
    train: Batch,
    validation: Batch,
    num_classes: int | None,
    config: TableConfig,
    scales: Scales,
    budget: Budget,
    *,
    mesh: Mesh = ALONE,
    generator: torch.Generator,
    progress: bool | None = None,
) -> Fitted:
    """Trains one ensemble on all rows, under a prior of these scales.

    Validation rows, where there are any, select the epoch and calibrate the noise or temperature, which is then fixed;
    the last steps are on all rows. Without them, Bayes' weight alone prevents overfitting.

    Args:
        train: inputs (N, D), standardised and times their relevance; standardised targets (N, C), or labels (N,).
        validation: rows in the same units; may be empty.
        num_classes: None for real targets.
        mesh: the ranks that the members are distributed over; every rank returns the whole ensemble.
    """
    _check_ranks(config.members, mesh)
    whole, method = initial(train, num_classes, config, scales, generator=generator)
    ensemble = whole.split(mesh)
    trainer = _Trainer(ensemble, method, config.learning_rate, generator, progress)
    if not len(validation):
        history = trainer(train, budget.plan(len(train)))
        return Fitted(ensemble.whole().eval(), method, math.nan, None, history)
    history = trainer(train, _watched(budget.first(), len(train), len(validation)), validation)
    whole = ensemble.whole().eval()
    nll = _score(whole, method, validation)
    outputs = evaluate(whole, validation.inputs)
    calibrate_cautiously(method, outputs, validation.targets, validation.weights)
    method.requires_grad_(False)
    held_out = method.predictive(outputs, generator=generator.clone_state())
    rest = budget.last(history.last["seconds"])
    both = joined(train, validation)
    last = replace(trainer, learning_rate=FINISH_RATE * config.learning_rate)(both, rest.plan(len(both)))
    if rest.checkpoints is not None and mesh.is_first:
        rest.checkpoints.discard()
    return Fitted(ensemble.whole().eval(), method, nll, held_out, history.then(last))


@dataclass(frozen=True)
class _Trainer:
    """Trains an ensemble in place: Adam with a cosine schedule."""

    ensemble: Ensemble
    method: Built
    learning_rate: float
    generator: torch.Generator
    progress: bool | None

    def __call__(self, rows: Batch, plan: Plan, validation: Batch | None = None) -> History:
        trained = [p for p in (*self.ensemble.parameters(), *self.method.parameters()) if p.requires_grad]
        optimizer = adam(trained, self.learning_rate)

        def scores(members: Ensemble) -> dict[str, float]:
            assert validation is not None
            return {"nll": _score(members, self.method, validation)}

        with measured_threads() as trial:
            return fit(
                self.ensemble,
                rows,
                self.method,
                replace(plan, stepping=Timed(plan.stepping, trial)),
                optimizer=optimizer,
                scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.epochs),
                validation=scores if validation is not None else None,
                generator=self.generator,
                progress=self.progress,
            )


def _watched(budget: Budget, rows: int, validation_rows: int) -> Plan:
    """The plan with early stopping by the validation NLL."""
    plan = budget.plan(rows)
    patience = math.ceil(PATIENCE * plan.epochs)
    return replace(plan, early_stopping=EarlyStopping("validation/nll", patience, PROGRESS / validation_rows**0.5))


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
        return Gaussian(noise_variance, learned=True, floor=NOISE_FLOOR * noise_variance)
    return HeteroscedasticGaussian(noise_variance)


def network_for(
    num_features: int, num_targets: int, num_classes: int | None, config: TableConfig, activation: str
) -> nn.Module:
    """One member: an MLP with one output per class or target; two per target where the noise depends on the input."""
    per_target = 2 if config.noise == INPUT_DEPENDENT else 1
    outputs = num_targets * per_target if num_classes is None else num_classes
    return mlp(num_features, config.hidden_layers, outputs, activation=ACTIVATIONS[activation])


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
        network = network_for(data.inputs.shape[1], num_targets, num_classes, config, scales.activation)
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
