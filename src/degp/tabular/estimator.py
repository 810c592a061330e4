"""What the estimators for tables share: parameters, training, and prediction in standardised units."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from degp.data import Standardiser, hold_out_rows
from degp.data.arrays import relative
from degp.gaussian import Coefficients
from degp.likelihoods import Likelihood
from degp.methods import Kind
from degp.prediction import predict
from degp.predictive import Predictive
from degp.runtime.distributed import Mesh, current
from degp.tabular.class_process import ClassProcess
from degp.tabular.embedding import Embedding
from degp.tabular.fingerprints import fingerprints
from degp.tabular.fitting import (
    CHECKPOINT_SECONDS,
    CHECKPOINT_STEPS,
    CONSTANT,
    Budget,
    Fitted,
    TableConfig,
    fit_table,
    stepping_for,
)
from degp.tabular.folders import ModelError, read_folder, write_folder
from degp.tabular.inputs import encode_inputs, learn_inputs, positional_names
from degp.tabular.preprocessing import Preprocessing
from degp.tabular.presets import Preset
from degp.tabular.prior_choice import choose_prior
from degp.tabular.prior_search import PriorSearch
from degp.tabular.process import Process
from degp.tabular.states import restore, state_of
from degp.training import Checkpoints
from degp.typing import Batch

__all__ = ["Array", "Estimator", "Uncertainty", "as_tensor"]

Array = NDArray[Any]
E = TypeVar("E")
NOT_OF_A_FIT = ("checkpoint", "verbose", "device", "max_seconds", "random_state")  # may change when a fit resumes
VALIDATION = 0.15  # the share of the rows that are held out where Bayes' weight alone does not prevent overfitting


@dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of each prediction and its parts: variances for real targets, nats for classes.

    Example:
        >>> parts = DEGPRegressor(random_state=0).fit(X, Y[:, 0]).uncertainty(X)
        >>> bool((abs(parts.epistemic + parts.aleatoric - parts.total) < 1e-9).all())
        True
    """

    epistemic: Array
    aleatoric: Array
    total: Array


class Estimator(BaseEstimator):
    """What the regressor and the classifier share: parameters, training and prediction in standardised units."""

    embedding_: Embedding
    input_scaling_: Standardiser
    process_: Process | ClassProcess | None
    preprocessing_: Preprocessing
    target_name_: str | None
    conformity_: Array
    fingerprints_: Array
    n_features_in_: int
    feature_names_in_: Array

    def __init__(
        self,
        *,
        preset: str = Preset.DEFAULT.value,
        method: str = Kind.DEGP.value,
        members: int | None = None,
        hidden_layers: tuple[int, ...] = (64, 64),
        alpha: float = 1.0,
        measurement_points: int = 64,
        epsilon: float = 0.005,
        noise: str = CONSTANT,
        class_weight: str | dict[Any, float] | None = None,
        exact_rows: int = 2000,
        validation_fraction: float | None = None,
        steps: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 0.01,
        max_seconds: float | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        self.method = method
        self.members = members
        self.hidden_layers = hidden_layers
        self.alpha = alpha
        self.measurement_points = measurement_points
        self.epsilon = epsilon
        self.noise = noise
        self.class_weight = class_weight
        self.exact_rows = exact_rows
        self.validation_fraction = validation_fraction
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_seconds = max_seconds
        self.device = device
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    @property
    def likelihood_(self) -> Likelihood:
        """p(y | f) of the fitted method, in standardised units."""
        return self.method_.likelihood

    @property
    def process_weight_(self) -> float:
        """The weight of the exact process in the prediction, from 0 (the ensemble alone) to 1 (the process alone)."""
        return 0.0 if self.process_ is None else self.process_.weight

    @property
    def relevance_(self) -> Array:
        """The factor on each standardised input of prior and networks: `preprocessing_.features`, then their pieces."""
        return np.array(self.scales_.relevance)

    @property
    def feature_relevance_(self) -> dict[str, float]:
        """The relevance of each column of the table, 0 for one that was left out.

        √Σ s² over its inputs: a number and its pieces; of those that share one variance, such as a category's, once.
        """
        features = self._squared_relevance()
        own = iter(zip(self.preprocessing_.groups, features, strict=True))
        squares = {
            column.name: sum(dict(next(own) for _ in column.features).values())
            for column in self.preprocessing_.columns
        }
        names = getattr(self, "feature_names_in_", positional_names(self.n_features_in_))
        return {name: squares.get(name, 0.0) ** 0.5 for name in names}

    def _squared_relevance(self) -> list[float]:
        """Σ s² over each feature and its pieces."""
        squares = [0.0] * self.embedding_.num_features
        for feature, s in zip(self.embedding_.sources, self.scales_.relevance, strict=True):
            squares[feature] += s**2
        return squares

    @property
    def alpha_(self) -> float | None:
        """The weight of the divergence that the model was trained with; None for methods without one."""
        return getattr(self.method_, "alpha", None)

    def _train(self, train: Batch, validation: Batch, num_classes: int | None, generator: torch.Generator) -> Fitted:
        """Fits to rows in standardised units."""
        mesh = current()
        checkpoints = self._checkpoints(train)
        fitted = fit_table(
            train.to(device=self.device),
            validation.to(device=self.device),
            num_classes,
            self.config(),
            self.scales_,
            self._budget(checkpoints, len(train) + len(validation), mesh),
            mesh=mesh,
            generator=generator,
            progress=self.verbose,
        )
        if checkpoints is not None and mesh.is_first:
            checkpoints.discard()
        # float64 from here on: a row's prediction must not depend on the other rows of the call, not even by rounding
        self.ensemble_, self.method_ = fitted.ensemble.double(), fitted.method
        self.validation_nll_ = fitted.validation_nll
        self.history_ = fitted.history.records
        self.n_iter_ = len(self.history_)
        self.ending_, self.planned_steps_ = fitted.history.ending, fitted.history.planned
        self.coefficients_: Coefficients | None = None
        return fitted

    def _search(self, rows: Batch, num_classes: int | None, generator: torch.Generator) -> PriorSearch:
        """The search for the prior of rows with standardised inputs."""
        return PriorSearch.of(
            rows.to(device=self.device),
            self.embedding_.num_features,
            num_classes,
            depth=len(self.hidden_layers),
            groups=self.embedding_.groups(self.preprocessing_.groups),
            generator=generator,
        )

    def _weigh_features(self, search: PriorSearch) -> None:
        """Finds the prior by evidence, and includes the relevance of each input in the input scaling."""
        choice = choose_prior(search, self.config())
        self.scales_ = choice.scales
        self.process_ = choice.process and choice.process.relative_to(self.scales_.relevance)
        relevance, scaling = self.scales_.relevance, self.input_scaling_
        if len(relevance) == search.num_features:
            self.embedding_ = Embedding(search.num_features)
        std = tuple(std / s for std, s in zip(scaling.std, relevance, strict=False))
        self.input_scaling_ = Standardiser(scaling.mean[: len(relevance)], std)

    def _split(self, inputs: Array, targets: Tensor, weights: Tensor | None) -> tuple[Batch, Batch, torch.Generator]:
        """Training rows, validation rows, if any, and the generator of everything random that follows."""
        weights = None if weights is None else relative(weights)
        rows, fraction = Batch(as_tensor(inputs), targets, weights=weights), self._validation_fraction(targets)
        if len(rows) < 2:
            raise ValueError(f"at least 2 rows are needed to learn from, but n_samples={len(rows)}")
        self.seed_ = current().world.agreed(self._seed())
        generator = torch.Generator(self.device).manual_seed(self.seed_)
        self.fingerprints_ = fingerprints(inputs, targets.numpy())
        train, validation = rows, rows[:0]
        if fraction > 0:
            train, validation = hold_out_rows(rows, fraction, generator=generator)
        self._learn_scaling(train)
        return train, validation, generator

    def _is_known(self, inputs: Array, targets: Array) -> Array:
        """Which rows the model was trained on, (N,); none as far as models of earlier versions know."""
        return np.isin(fingerprints(inputs, targets), self.fingerprints_)

    def _learn_scaling(self, train: Batch) -> None:
        """Embeds the numbers for real targets, and standardises all inputs."""
        present = train.inputs if train.weights is None else train.inputs[train.weights > 0]
        is_real = train.targets.is_floating_point()
        self.embedding_ = Embedding.fit(present) if is_real else Embedding(train.inputs.shape[1])
        inputs, own = self.embedding_.apply(train.inputs), self.preprocessing_.groups
        pieces = range(len(own), inputs.shape[1])  # each of variance 1
        self.input_scaling_ = Standardiser.fit(inputs, train.weights).shared(inputs, (*own, *pieces))

    def _validation_fraction(self, targets: Tensor) -> float:
        """By default none for DE-GP on real targets with constant noise: Bayes' weight prevents overfitting there."""
        if self.validation_fraction is None:
            config = self.config()
            is_gaussian = targets.is_floating_point() and config.noise == CONSTANT
            return 0.0 if is_gaussian and config.method is Kind.DEGP else VALIDATION
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must be at least 0 and less than 1, but it is {self.validation_fraction}"
            )
        return self.validation_fraction

    def _seed(self) -> int:
        """Without a random state 0, if there is a checkpoint: a fit resumes only with its own validation rows."""
        unset = self.checkpoint is not None and self.random_state is None
        return int(check_random_state(0 if unset else self.random_state).randint(2**31))

    def _checkpoints(self, train: Batch) -> Checkpoints | None:
        """Where to save; a fit to other rows, or with other settings, is not resumed."""
        if self.checkpoint is None:
            return None
        settings = {name: str(v) for name, v in self.get_params().items() if name not in NOT_OF_A_FIT}
        tensors = (train.inputs, train.targets, *([] if train.weights is None else [train.weights]))
        rows = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()
        checkpoints = Checkpoints(self.checkpoint, every=CHECKPOINT_STEPS, seconds=CHECKPOINT_SECONDS)
        return checkpoints.of({**settings, "seed": self.seed_, "rows": rows})

    def config(self) -> TableConfig:
        """What is trained, from the estimator's parameters."""
        return TableConfig(
            method=Kind(self.method),
            hidden_layers=tuple(self.hidden_layers),
            members=Preset(self.preset).members if self.members is None else self.members,
            alpha=self.alpha,
            measurement_points=self.measurement_points,
            epsilon=self.epsilon,
            noise=self.noise,
            learning_rate=self.learning_rate,
            exact_rows=self.exact_rows,
        )

    def _budget(self, checkpoints: Checkpoints | None, rows: int, mesh: Mesh) -> Budget:
        steps = Preset(self.preset).steps(rows) if self.steps is None else self.steps
        return Budget(steps, self.batch_size, self.max_seconds, stepping_for(self.device, mesh), checkpoints)

    def save(self, folder: Path | str) -> Path:
        """Writes the fitted model into a folder, atomically and without pickle; `degp predict` takes it too."""
        return write_folder(folder, *state_of(self))

    @classmethod
    def load(cls: type[E], folder: Path | str, *, device: str | None = None) -> E:
        """The model that `save` or `degp fit` wrote, with bit-for-bit equal predictions.

        Args:
            device: "cpu" or "cuda", instead of the one that it was trained on.
        """
        metadata, tensors = read_folder(folder)
        if metadata.get("estimator") != cls.__name__:
            raise ModelError(
                f"{folder} must be of a {cls.__name__}, but it is of a {metadata.get('estimator')}; load it by "
                f"{metadata.get('estimator')}.load"
            )
        return restore(cls, metadata, tensors, device=device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def _learn_inputs(self, X: Any, y: Any) -> Array:
        """Training rows as numbers; keeps their preprocessing, and the target's name."""
        rows, name = learn_inputs(self, X, y), getattr(y, "name", None)
        self.target_name_ = name if isinstance(name, str) else None
        self.preprocessing_ = rows.preprocessing.ignoring(self.target_name_)
        return rows.values

    def _predictive(self, inputs: Any) -> Predictive:
        """The predictive distribution in standardised units."""
        check_is_fitted(self)
        return self._predictive_at(self._standardised(as_tensor(encode_inputs(self, inputs))))

    def _predictive_at(self, points: Tensor) -> Predictive:
        generator = torch.Generator(self.device).manual_seed(self.seed_)  # the same answer in every call
        return predict(
            self.ensemble_,
            points.to(self.device).double(),
            self.method_,
            coefficients=self.coefficients_,
            generator=generator,
        )

    def _standardised(self, inputs: Tensor) -> Tensor:
        return self.input_scaling_.apply(self.embedding_.apply(inputs)).float()


def as_tensor(array: Array) -> Tensor:
    """A copy in float64, row by row: pandas hands out arrays that must not be written to, or that run backwards."""
    return torch.tensor(np.ascontiguousarray(array), dtype=torch.float64)
