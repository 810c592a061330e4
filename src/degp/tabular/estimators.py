"""Estimators for scikit-learn: tables in, calibrated error bars out."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from degp.data import Standardiser, hold_out_rows
from degp.gaussian import Coefficients
from degp.likelihoods import Likelihood
from degp.methods import Kind
from degp.prediction import evaluate, predict
from degp.predictive import ClassPredictive, Predictive, RegressionPredictive
from degp.runtime.distributed import Mesh, current
from degp.tabular.fitting import CONSTANT, TableConfig, fit_table, scales_for, stepping_for
from degp.training import Checkpoints, EarlyStopping, Plan
from degp.typing import Batch

__all__ = ["DEGPClassifier", "DEGPRegressor", "Uncertainty"]

Array = NDArray[Any]
NOT_OF_A_FIT = ("checkpoint", "verbose", "device", "max_seconds", "random_state")  # may change when a fit resumes
PROGRESS = 0.15  # √N times the NLL that counts as progress on N validation rows: a fifth of a standard error
BATCHES_PER_EPOCH = 32
CHECKPOINT_STEPS, CHECKPOINT_SECONDS = 1000, 10.0  # whichever comes first


@dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of each prediction and its parts: variances for real targets, nats for classes."""

    epistemic: Array
    aleatoric: Array
    total: Array


class _Estimator(BaseEstimator):
    """What the regressor and the classifier share: parameters, training and prediction in standardised units."""

    input_scaling_: Standardiser

    def __init__(
        self,
        *,
        method: str = Kind.DEGP.value,
        members: int = 16,
        hidden_layers: tuple[int, ...] = (64, 64),
        alpha: float = 1.0,
        measurement_points: int = 64,
        epsilon: float = 0.05,
        noise: str = CONSTANT,
        validation_fraction: float = 0.15,
        max_epochs: int = 1000,
        patience: int = 100,
        batch_size: int = 256,
        learning_rate: float = 0.01,
        max_seconds: float | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.members = members
        self.hidden_layers = hidden_layers
        self.alpha = alpha
        self.measurement_points = measurement_points
        self.epsilon = epsilon
        self.noise = noise
        self.validation_fraction = validation_fraction
        self.max_epochs = max_epochs
        self.patience = patience
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
        """The relevance of each feature: the factor on its standardised values in the prior and the networks."""
        return np.array(self.scales_.relevance)

    @property
    def alpha_(self) -> float | None:
        """The weight of the divergence that the model was trained with; None for methods without one."""
        return getattr(self.method_, "alpha", None)

    def _train(self, train: Batch, validation: Batch, num_classes: int | None, generator: torch.Generator) -> None:
        """Fits to rows in standardised units."""
        mesh = current()
        checkpoints = self._checkpoints(train)
        fitted = fit_table(
            train.to(device=self.device),
            validation.to(device=self.device),
            num_classes,
            self.config(),
            self.scales_,
            self._plan(checkpoints, len(train), len(validation), mesh),
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
        self.ending_ = fitted.history.ending
        self.coefficients_: Coefficients | None = None

    def _weigh_features(self, rows: Batch, num_classes: int | None, generator: torch.Generator) -> None:
        """Finds the prior's scales by evidence, and includes the relevance of each feature in the input scaling."""
        self.scales_ = scales_for(rows.to(device=self.device), num_classes, self.config(), generator=generator)
        scaling = self.input_scaling_
        std = tuple(std / relevance for std, relevance in zip(scaling.std, self.scales_.relevance, strict=True))
        self.input_scaling_ = Standardiser(scaling.mean, std)

    def _split(self, inputs: Array, targets: Tensor) -> tuple[Batch, Batch, torch.Generator]:
        """Training rows, validation rows, and the generator of everything random that follows."""
        if len(inputs) < 2:
            raise ValueError(
                f"at least 2 rows are needed, one to train on and one to validate, but n_samples={len(inputs)}"
            )
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, but it is {self.validation_fraction}")
        self.seed_ = current().world.agreed(self._seed())
        generator = torch.Generator(self.device).manual_seed(self.seed_)
        train, validation = hold_out_rows(
            Batch(_tensor(inputs), targets), self.validation_fraction, generator=generator
        )
        self.input_scaling_ = Standardiser.fit(train.inputs)
        return train, validation, generator

    def _seed(self) -> int:
        """Without a random state 0, if there is a checkpoint: a fit resumes only with its own validation rows."""
        unset = self.checkpoint is not None and self.random_state is None
        return int(check_random_state(0 if unset else self.random_state).randint(2**31))

    def _checkpoints(self, train: Batch) -> Checkpoints | None:
        """Where to save; a fit to other rows, or with other settings, is not resumed."""
        if self.checkpoint is None:
            return None
        settings = {name: str(v) for name, v in self.get_params().items() if name not in NOT_OF_A_FIT}
        rows = hashlib.sha256(train.inputs.numpy().tobytes() + train.targets.numpy().tobytes()).hexdigest()
        checkpoints = Checkpoints(self.checkpoint, every=CHECKPOINT_STEPS, seconds=CHECKPOINT_SECONDS)
        return checkpoints.of({**settings, "seed": self.seed_, "rows": rows})

    def config(self) -> TableConfig:
        """What is trained, from the estimator's parameters."""
        return TableConfig(
            method=Kind(self.method),
            hidden_layers=tuple(self.hidden_layers),
            members=self.members,
            alpha=self.alpha,
            measurement_points=self.measurement_points,
            epsilon=self.epsilon,
            noise=self.noise,
            learning_rate=self.learning_rate,
        )

    def _plan(self, checkpoints: Checkpoints | None, rows: int, validation_rows: int, mesh: Mesh) -> Plan:
        stepping = stepping_for(self.device, mesh)
        batches = -(-rows // self.batch_size)
        return Plan(
            self.max_epochs,
            rows // batches if stepping.even else self.batch_size,
            batches_per_epoch=BATCHES_PER_EPOCH,
            early_stopping=EarlyStopping("validation/nll", self.patience, PROGRESS / validation_rows**0.5),
            max_seconds=self.max_seconds,
            stepping=stepping,
            checkpoints=checkpoints,
            resume=True,
        )

    def _predictive(self, inputs: Any) -> Predictive:
        """The predictive distribution in standardised units."""
        check_is_fitted(self)
        X = validate_data(self, inputs, dtype=np.float64, reset=False)
        return self._predictive_at(self._standardised(_tensor(X)))

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
        return self.input_scaling_.apply(inputs).float()


class DEGPRegressor(RegressorMixin, _Estimator):
    """A regressor with calibrated error bars: a deep ensemble trained and read as one Gaussian process.

    Inputs and targets are standardised, the scales of the prior, among them the relevance of each feature, maximise its
    marginal likelihood, one ensemble is trained by Bayes' rule, and its noise is calibrated on validation rows.

    Args:
        method: "degp", or one of the baselines "de", "rde" and "rms".
        members: networks in the ensemble.
        hidden_layers: widths of each network's hidden layers.
        alpha: weight of the divergence in units of Bayes' weight; 1 is Bayes' rule.
        measurement_points: points per step, besides the batch, where the divergence is measured.
        epsilon: λ and jitter as a share of the mean variance.
        noise: "constant", or "input-dependent": an output of the network. Classifiers ignore it.
        validation_fraction: share of the rows for early stopping and calibration; see `degp.data.hold_out_rows`.
        max_epochs: at most; `patience` epochs without progress end the training before. An epoch is a pass over the
            data, or 32 batches of rows drawn at random where there are more.
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

    def fit(self, X: Any, y: Any) -> "DEGPRegressor":
        """Trains on rows X (N, D) and targets y, (N,) or (N, C)."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self.single_target_ = y.ndim == 1
        train, validation, generator = self._split(X, _tensor(y).reshape(len(y), -1))
        self.target_scaling_ = Standardiser.fit(train.targets)
        self._weigh_features(self._batch(train), None, generator)
        train, validation = (self._batch(rows) for rows in (train, validation))
        self._train(train, validation, None, generator)
        self.conformity_ = self._conformity(validation)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Array | tuple[Array, Array]:
        """The expected target; with its standard deviation, or the joint covariance of all rows, noise included."""
        if return_std and return_cov:
            raise RuntimeError("at most one of return_std and return_cov can be asked for")
        predictive = self._predictive(X)
        mean = self._original(predictive.mean)
        if return_std:
            return mean, self._original_std(predictive.std)
        if return_cov:
            return mean, self._covariance(predictive)
        return mean

    def predict_interval(self, X: Any, level: float = 0.9, *, conformal: bool = False) -> Array:
        """Lower and upper ends (N, 2), or (N, C, 2): Gaussian, or widened as the validation rows ask for.

        Args:
            conformal: split-conformal intervals, mean ± q · std with q the quantile of the standardised errors of rows
                that were not trained on; see `conformalize` for rows that were not used for choosing either.
        """
        predictive = self._predictive(X)
        if conformal:
            half = torch.tensor(self._conformal_quantile(level)).to(predictive.std) * predictive.std
            low, high = predictive.mean - half, predictive.mean + half
        else:
            low, high = predictive.interval(level)
        return np.stack([self._original(low), self._original(high)], axis=-1)

    def conformalize(self, X: Any, y: Any) -> "DEGPRegressor":
        """Takes rows that were never seen to calibrate conformal intervals: coverage then holds at any sample size."""
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=False)
        self.conformity_ = self._conformity(self._batch(Batch(_tensor(X), _tensor(y).reshape(len(y), -1))))
        return self

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int | None = 0) -> Array:
        """Joint draws of the targets of all rows, (N, n_samples) or (N, C, n_samples)."""
        seed = int(check_random_state(random_state).randint(2**31))
        generator = torch.Generator(self.device).manual_seed(seed)
        draws = self._predictive(X).sample(n_samples, generator=generator)
        return np.moveaxis(np.stack([self._original(draw) for draw in draws]), 0, -1)

    def uncertainty(self, X: Any) -> Uncertainty:
        """Variances of each row: what more data would remove, what would remain, and their sum."""
        predictive = self._predictive(X)
        parts = (predictive.epistemic, predictive.aleatoric, predictive.total)
        return Uncertainty(*(self._original_std(part.sqrt()) ** 2 for part in parts))

    @torch.no_grad()
    def update(self, X: Any, y: Any) -> "DEGPRegressor":
        """Takes in new labels without training: conditions the Gaussian process on them, exactly, at the cost of M³."""
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=False)
        new = self._batch(Batch(_tensor(X), _tensor(y).reshape(len(y), -1))).to(device=self.device)
        before = self.method_.predictive(evaluate(self.ensemble_, new.inputs.double()))
        assert isinstance(before, RegressionPredictive)
        self.coefficients_ = before.posterior.coefficients(new.targets, before.aleatoric, before=self.coefficients_)
        return self

    def _predictive(self, inputs: Any) -> RegressionPredictive:
        predictive = super()._predictive(inputs)
        assert isinstance(predictive, RegressionPredictive)
        return predictive

    def _predictive_at(self, points: Tensor) -> RegressionPredictive:
        predictive = super()._predictive_at(points)
        assert isinstance(predictive, RegressionPredictive)
        return predictive

    def _conformity(self, held_out: Batch) -> Array:
        """Sorted |y − m| / std of rows that were not trained on, the largest over a row's targets."""
        predictive = self._predictive_at(held_out.inputs)
        scores = ((held_out.targets.to(self.device) - predictive.mean).abs() / predictive.std).amax(1)
        return np.sort(scores.cpu().numpy())

    def _conformal_quantile(self, level: float) -> float:
        if not 0 < level < 1:
            raise ValueError(f"level is a probability between 0 and 1, but it is {level}; 0.9 is a 90 % interval")
        n = len(self.conformity_)
        rank = int(np.ceil((n + 1) * level))
        return float(self.conformity_[rank - 1]) if rank <= n else float("inf")

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
        return Batch(self._standardised(rows.inputs), self.target_scaling_.apply(rows.targets).float())

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

    def fit(self, X: Any, y: Any) -> "DEGPClassifier":
        """Trains on rows X (N, D) and their classes y (N,), of any type."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"there must be at least 2 classes, but all targets are one class: {self.classes_[0]}")
        parts = self._split(X, torch.from_numpy(labels.astype(np.int64)))
        train, validation, generator = parts
        self._weigh_features(Batch(self._standardised(train.inputs), train.targets), len(self.classes_), generator)
        train, validation = (Batch(self._standardised(rows.inputs), rows.targets) for rows in (train, validation))
        self._train(train, validation, len(self.classes_), generator)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (N, classes), in the order of `classes_`."""
        return self._class_predictive(X).probabilities.double().cpu().numpy()

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        columns = self.predict_proba(X).argmax(1)
        return self.classes_[columns]

    def uncertainty(self, X: Any) -> Uncertainty:
        """Nats of each row: mutual information (epistemic), expected entropy (aleatoric), entropy (total)."""
        predictive = self._class_predictive(X)
        parts = (predictive.epistemic, predictive.aleatoric, predictive.total)
        return Uncertainty(*(part.double().cpu().numpy() for part in parts))

    def _class_predictive(self, X: Any) -> ClassPredictive:
        predictive = self._predictive(X)
        assert isinstance(predictive, ClassPredictive)
        return predictive


def _tensor(array: Array) -> Tensor:
    """A copy in float64: pandas hands out arrays that must not be written to, and torch warns of those."""
    return torch.tensor(array, dtype=torch.float64)
