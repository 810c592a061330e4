"""Estimators for scikit-learn: tables in, calibrated error bars out."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y
from torch import Tensor

from degp.data import Standardiser, hold_out_rows
from degp.data.arrays import relative
from degp.gaussian import Coefficients
from degp.likelihoods import Likelihood
from degp.methods import Kind
from degp.prediction import evaluate, predict
from degp.predictive import ClassPredictive, Predictive, RegressionPredictive
from degp.runtime.distributed import Mesh, current
from degp.tabular.conformal import as_levels, conformal_quantile, mass_above, probable_set
from degp.tabular.embedding import Embedding
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
from degp.tabular.process import Process
from degp.tabular.states import restore, state_of
from degp.tabular.weights import weighted_rows
from degp.training import Checkpoints
from degp.typing import Batch

__all__ = ["DEGPClassifier", "DEGPRegressor", "Uncertainty"]

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


class _Estimator(BaseEstimator):
    """What the regressor and the classifier share: parameters, training and prediction in standardised units."""

    embedding_: Embedding
    input_scaling_: Standardiser
    process_: Process | None
    preprocessing_: Preprocessing
    target_name_: str | None
    conformity_: Array
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

    def _weigh_features(self, rows: Batch, num_classes: int | None, generator: torch.Generator) -> None:
        """Finds the prior by evidence, and includes the relevance of each input in the input scaling."""
        rows, D = rows.to(device=self.device), self.embedding_.num_features
        groups = self.embedding_.groups(self.preprocessing_.groups)
        choice = choose_prior(rows, D, num_classes, self.config(), groups=groups, generator=generator)
        self.scales_ = choice.scales
        self.process_ = choice.process and choice.process.relative_to(self.scales_.relevance)
        relevance, scaling = self.scales_.relevance, self.input_scaling_
        if len(relevance) == D:
            self.embedding_ = Embedding(D)
        std = tuple(std / s for std, s in zip(scaling.std, relevance, strict=False))
        self.input_scaling_ = Standardiser(scaling.mean[: len(relevance)], std)

    def _split(self, inputs: Array, targets: Tensor, weights: Tensor | None) -> tuple[Batch, Batch, torch.Generator]:
        """Training rows, validation rows, if any, and the generator of everything random that follows."""
        weights = None if weights is None else relative(weights)
        rows, fraction = Batch(_tensor(inputs), targets, weights=weights), self._validation_fraction(targets)
        if len(rows) < 2:
            raise ValueError(f"at least 2 rows are needed to learn from, but n_samples={len(rows)}")
        self.seed_ = current().world.agreed(self._seed())
        generator = torch.Generator(self.device).manual_seed(self.seed_)
        train, validation = rows, rows[:0]
        if fraction > 0:
            train, validation = hold_out_rows(rows, fraction, generator=generator)
        self._learn_scaling(train)
        return train, validation, generator

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
        return self._predictive_at(self._standardised(_tensor(encode_inputs(self, inputs))))

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


class DEGPRegressor(RegressorMixin, _Estimator):
    """A regressor with calibrated error bars: a deep ensemble trained and read as one Gaussian process.

    X is an array, a data frame or a sparse matrix, of numbers, categories, booleans, dates and missing cells. Inputs
    and targets are standardised, the scales of the prior, among them the relevance of each feature, maximise its
    marginal likelihood, and one ensemble is trained on every row by Bayes' rule. Small tables are predicted by the
    average of the ensemble and the exact Gaussian process of the same kind of prior; targets without noise, such as a
    simulator's, by the exact process alone. `process_weight_` says which.

    Args:
        preset: "fast", "default" or "best": how many members and steps; see `degp.tabular.Preset`.
        method: "degp", or one of the baselines "de", "rde" and "rms".
        members: networks in the ensemble; by the preset if None.
        hidden_layers: widths of each network's hidden layers.
        alpha: weight of the divergence in units of Bayes' weight; 1 is Bayes' rule.
        measurement_points: points per step, besides the batch, where the divergence is measured.
        epsilon: λ and jitter as a share of the mean variance.
        noise: "constant", or "input-dependent": an output of the network. Classifiers ignore it.
        class_weight: of classifiers: the weight of each class, by its label; "balanced" for inverse frequencies.
        exact_rows: rows that the exact process is conditioned on at most; it costs their third power. 0 serves the
            ensemble alone. Classifiers, baselines and input-dependent noise ignore it.
        validation_fraction: share of the rows for early stopping and calibration, before the last steps on all rows;
            None holds out 15 % for classes, baselines and input-dependent noise, and nothing otherwise.
        steps: of the optimiser; by the preset and the number of rows if None.
        batch_size: rows per step.
        learning_rate: of Adam.
        max_seconds: stop training after this time.
        device: "cpu" or "cuda".
        random_state: for everything random.
        checkpoint: folder where an interrupted fit is saved, and from which the same call resumes with the same rows
            and settings; it is emptied when the fit is done. Without a `random_state` the seed is then 0.
        verbose: show a progress bar, or without a terminal a line every 30 seconds.

    Example:
        >>> model = DEGPRegressor(random_state=0).fit(X, y)
        >>> mean, std = model.predict(X, return_std=True)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "DEGPRegressor":
        """Trains on rows X (N, D) and targets y, (N,) or (N, C).

        Args:
            sample_weight: relative weights of the rows, (N,); one of weight 0 is absent.
        """
        if self.class_weight is not None:
            raise ValueError(
                f"class_weight is for classifiers, but it is {self.class_weight!r}; pass sample_weight to fit"
            )
        X, y = self._checked(self._learn_inputs(X, y), y)
        self.single_target_ = y.ndim == 1
        X, y, weights = weighted_rows(X, y, sample_weight)
        train, validation, generator = self._split(X, _tensor(y).reshape(len(y), -1), weights)
        self.target_scaling_ = Standardiser.fit(train.targets, train.weights)
        self._weigh_features(self._batch(train), None, generator)
        train, validation = (self._batch(rows) for rows in (train, validation))
        fitted = self._train(train, validation, None, generator)
        self._weigh_process(has_every_row=len(train) <= self.exact_rows)
        if len(validation) and self.process_ is not None:
            self.process_ = self.process_.conditioned(validation.to(device=self.device))
        self._score_held_out(fitted, validation)
        return self

    @property
    def process_weight_(self) -> float:
        """The weight of the exact process in the prediction: 0 is the ensemble alone, 1 the process alone."""
        return 0.0 if self.process_ is None else self.process_.weight

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Array | tuple[Array, Array]:
        """The expected target; with its standard deviation, or the joint covariance of all rows, noise included."""
        if return_std and return_cov:
            raise RuntimeError("at most one of return_std and return_cov can be asked for")
        if return_cov:
            joint = self._predictive(X, joint=True)
            return self._original(joint.mean), self._covariance(joint)
        predictive = self._predictive(X)
        mean = self._original(predictive.mean)
        return (mean, self._original_std(predictive.std)) if return_std else mean

    def predict_interval(
        self, X: Any, level: float | Sequence[float] | Array = 0.9, *, conformal: bool = False
    ) -> Array:
        """Lower and upper ends (N, 2), or (N, C, 2): Gaussian, or conformal.

        Args:
            level: the probability that an interval contains its target. L of them give (N, L, 2), or (N, C, L, 2), from
                one evaluation; an interval lies inside those of higher levels.
            conformal: mean ± q · std with q the quantile of standardised errors: of validation rows, or of the exact
                process leaving one row out; `conformalize` takes unseen rows, for which coverage is guaranteed.
        """
        levels = as_levels(level)
        predictive = self._predictive(X)
        intervals = [self._interval(predictive, float(each), conformal) for each in levels]
        return intervals[0] if np.ndim(level) == 0 else np.stack(intervals, axis=-2)

    def conformalize(self, X: Any, y: Any) -> "DEGPRegressor":
        """Takes rows that were never seen to calibrate conformal intervals: coverage then holds at any sample size."""
        rows = self._labelled(X, y)
        self.conformity_ = self._conformity(self._predictive_at(rows.inputs), rows.targets)
        return self

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int | None = 0) -> Array:
        """Joint draws of the targets of all rows, (N, n_samples) or (N, C, n_samples)."""
        seed = int(check_random_state(random_state).randint(2**31))
        generator = torch.Generator(self.device).manual_seed(seed)
        draws = self._predictive(X, joint=True).sample(n_samples, generator=generator)
        return np.moveaxis(np.stack([self._original(draw) for draw in draws]), 0, -1)

    def uncertainty(self, X: Any) -> Uncertainty:
        """Variances of each row: what more data would remove, what would remain, and their sum."""
        predictive = self._predictive(X)
        parts = (predictive.epistemic, predictive.aleatoric, predictive.total)
        return Uncertainty(*(self._original_std(part.sqrt()) ** 2 for part in parts))

    @torch.no_grad()
    def update(self, X: Any, y: Any) -> "DEGPRegressor":
        """Takes in new labels without training: conditions the Gaussian process on them, exactly, at the cost of M³."""
        new = self._labelled(X, y).to(device=self.device)
        before = self.method_.predictive(evaluate(self.ensemble_, new.inputs.double()))
        assert isinstance(before, RegressionPredictive)
        self.coefficients_ = before.posterior.coefficients(new.targets, before.aleatoric, before=self.coefficients_)
        self.process_ = self.process_ and self.process_.conditioned(new)
        return self

    def _predictive(self, inputs: Any, *, joint: bool = False) -> RegressionPredictive:
        check_is_fitted(self)
        return self._predictive_at(self._standardised(_tensor(encode_inputs(self, inputs))), joint=joint)

    def _predictive_at(self, points: Tensor, *, joint: bool = False) -> RegressionPredictive:
        """What is served: the ensemble, the exact process, or their average; `joint` keeps all covariances."""
        if self.process_ is None or self.process_weight_ == 0:
            return self._ensemble_predictive(points)
        process = self.process_.predictive(points.to(self.device), joint=joint)
        return (
            process if self.process_weight_ == 1 else self.process_.averaged(self._ensemble_predictive(points), process)
        )

    def _ensemble_predictive(self, points: Tensor) -> RegressionPredictive:
        predictive = super()._predictive_at(points)
        assert isinstance(predictive, RegressionPredictive)
        return predictive

    def _weigh_process(self, *, has_every_row: bool) -> None:
        if self.process_ is not None:
            rows = self.process_.rows
            nll = -self._ensemble_predictive(rows.inputs).log_prob(rows.targets).mean()
            self.process_ = self.process_.weighed_against(float(nll), has_every_row=has_every_row)

    def _score_held_out(self, fitted: Fitted, validation: Batch) -> None:
        """The NLL and the standardised errors of rows that a prediction has not seen: validation, or leave-one-out."""
        self.conformity_ = np.empty(0)
        if fitted.held_out is not None:
            self.conformity_ = self._conformity(fitted.held_out, validation.targets)
        elif self.process_ is not None:
            self.conformity_ = np.sort(self.process_.leave_one_out_scores().cpu().numpy())
            self.validation_nll_ = float(self.process_.leave_one_out_nll().mean())

    def _conformity(self, predictive: Predictive, targets: Tensor) -> Array:
        """Sorted |y − m| / std of rows that were not trained on, the largest over a row's targets."""
        assert isinstance(predictive, RegressionPredictive)
        scores = ((targets.to(self.device) - predictive.mean).abs() / predictive.std).amax(1)
        return np.sort(scores.cpu().numpy())

    def _interval(self, predictive: RegressionPredictive, level: float, conformal: bool) -> Array:
        """The ends of one level, in original units."""
        low, high = predictive.interval(level)
        if conformal:
            half = torch.tensor(conformal_quantile(self.conformity_, level)).to(predictive.std) * predictive.std
            low, high = predictive.mean - half, predictive.mean + half
        return np.stack([self._original(low), self._original(high)], axis=-1)

    def _checked(self, inputs: Array, y: Any) -> tuple[Array, Array]:
        """Inputs and targets as arrays, if they belong together."""
        return check_X_y(inputs, y, dtype=(np.float64, np.float32), multi_output=True, y_numeric=True, estimator=self)

    def _labelled(self, X: Any, y: Any) -> Batch:
        """New rows and their targets in standardised units."""
        check_is_fitted(self)
        X, y = self._checked(encode_inputs(self, X), y)
        return self._batch(Batch(_tensor(X), _tensor(y).reshape(len(y), -1)))

    def _covariance(self, predictive: RegressionPredictive) -> Array:
        q, scale = predictive.posterior, np.asarray(self.target_scaling_.std) ** 2
        blocks = [
            q.deviations[:, :, c].mT @ q.deviations[:, :, c] + torch.diag(q.diagonal[:, c] + predictive.aleatoric[:, c])
            for c in range(q.mean.shape[1])
        ]
        covariance = np.stack([block.double().cpu().numpy() for block in blocks], axis=-1) * scale
        return covariance[..., 0] if self.single_target_ else covariance

    def _batch(self, rows: Batch) -> Batch:
        """Rows in original units, standardised."""
        inputs, targets = self._standardised(rows.inputs), self.target_scaling_.apply(rows.targets).float()
        return replace(rows, inputs=inputs, targets=targets)

    def _original(self, values: Tensor) -> Array:
        array = self.target_scaling_.undo(values.double().cpu()).numpy()
        return array[:, 0] if self.single_target_ else array

    def _original_std(self, values: Tensor) -> Array:
        array = self.target_scaling_.undo_std(values.double().cpu()).numpy()
        return array[:, 0] if self.single_target_ else array


class DEGPClassifier(ClassifierMixin, _Estimator):
    """A classifier with calibrated probabilities and the uncertainty behind them; arguments as in `DEGPRegressor`.

    Example:
        >>> model = DEGPClassifier(random_state=0).fit(X, y)
        >>> model.predict_proba(X), model.uncertainty(X).epistemic
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "DEGPClassifier":
        """Trains on rows X (N, D) and their classes y (N,), of any type.

        Args:
            sample_weight: relative weights of the rows, (N,), times those of their classes; one of weight 0 is absent.
        """
        X, y = self._checked(self._learn_inputs(X, y), y)
        X, y, weights = weighted_rows(X, y, sample_weight, self.class_weight)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"there must be at least 2 classes, but all targets are one class: {self.classes_[0]}")
        train, validation, generator = self._split(X, torch.from_numpy(labels.astype(np.int64)), weights)
        self._weigh_features(self._batch(train), len(self.classes_), generator)
        train, validation = (self._batch(rows) for rows in (train, validation))
        fitted = self._train(train, validation, len(self.classes_), generator)
        self.process_ = None
        self.conformity_ = np.empty(0)
        if fitted.held_out is not None:
            self.conformity_ = self._conformity(fitted.held_out, validation.targets.numpy())
        return self

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (N, classes), in the order of `classes_`."""
        return self._class_predictive(X).probabilities.double().cpu().numpy()

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        columns = self.predict_proba(X).argmax(1)
        return self.classes_[columns]

    def predict_set(self, X: Any, level: float = 0.9, *, conformal: bool = False) -> Array:
        """Which classes (N, classes), in the order of `classes_`, are in the set for each row; at least one is.

            {y : a(x, y) < level},  or conformal  {y : a(x, y) ≤ q},  a(x, y) = Σ p(y' | x) over y' more probable than y

        The first is the smallest set whose probability is at least `level`.

        Args:
            level: the probability that a set contains the class of its row; sets grow with it.
            conformal: split-conformal sets (APS without randomisation), q being the quantile of a(x, y) over rows that
                were not trained on: coverage holds even where the probabilities are wrong. See `conformalize`.
        """
        (value,) = as_levels([level])
        probabilities = self.predict_proba(X)
        if not conformal:
            return probable_set(probabilities, value)
        return mass_above(probabilities) <= conformal_quantile(self.conformity_, value)

    def conformalize(self, X: Any, y: Any) -> "DEGPClassifier":
        """Takes rows that were never seen to calibrate conformal sets: coverage then holds at any sample size."""
        check_is_fitted(self)
        X, y = self._checked(encode_inputs(self, X), y)
        unseen = ~np.isin(y, self.classes_)
        if unseen.any():
            raise ValueError(
                f"y must have classes of training, but row {int(unseen.argmax())} has {str(y[unseen][0])!r}, which is "
                f"none of the {len(self.classes_)}; leave such rows out"
            )
        predictive = self._predictive_at(self._standardised(_tensor(X)))
        self.conformity_ = self._conformity(predictive, np.searchsorted(self.classes_, y))
        return self

    def uncertainty(self, X: Any) -> Uncertainty:
        """Nats of each row: mutual information (epistemic), expected entropy (aleatoric), entropy (total)."""
        predictive = self._class_predictive(X)
        parts = (predictive.epistemic, predictive.aleatoric, predictive.total)
        return Uncertainty(*(part.double().cpu().numpy() for part in parts))

    def _batch(self, rows: Batch) -> Batch:
        """Rows in original units, standardised."""
        return replace(rows, inputs=self._standardised(rows.inputs))

    def _checked(self, inputs: Array, y: Any) -> tuple[Array, Array]:
        """Inputs and labels as arrays, if they belong together."""
        inputs, y = check_X_y(inputs, y, dtype=(np.float64, np.float32), estimator=self)
        missing = np.array([label is None or label != label for label in y]) if y.dtype.kind == "O" else np.array(False)
        if missing.any():
            raise ValueError(
                f"y must have a class for each row, but row {int(missing.argmax())} has none; leave it out"
            )
        check_classification_targets(y)
        return inputs, y

    def _conformity(self, predictive: Predictive, labels: Array) -> Array:
        """Sorted a(x, y) of rows that were not trained on."""
        assert isinstance(predictive, ClassPredictive)
        mass = mass_above(predictive.probabilities.double().cpu().numpy())
        return np.sort(mass[np.arange(len(labels)), labels])

    def _class_predictive(self, X: Any) -> ClassPredictive:
        predictive = self._predictive(X)
        assert isinstance(predictive, ClassPredictive)
        return predictive


def _tensor(array: Array) -> Tensor:
    """A copy in float64, row by row: pandas hands out arrays that must not be written to, or that run backwards."""
    return torch.tensor(np.ascontiguousarray(array), dtype=torch.float64)
