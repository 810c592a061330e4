"""Estimators in scikit-learn's way: tables in, calibrated error bars out."""

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

from degp.data.standardise import Standardiser
from degp.distributed import current
from degp.gaussian import Coefficients
from degp.posterior import PointwiseAverage
from degp.prediction import predict as predict_process
from degp.prediction import predict_mixture
from degp.selection import Budget, discard
from degp.tabular import Outcome, Recipe, train_on_table
from degp.training import Checkpoints
from degp.typing import Batch
from degp.uncertainty import ClassPredictive, Predictive, RegressionPredictive

Array = NDArray[Any]
NOT_OF_A_FIT = ("checkpoint", "verbose", "device", "max_seconds", "random_state")  # may change while it goes on


@dataclass(frozen=True)
class Uncertainty:
    """How unsure a prediction is, and why: variances for real targets, nats for classes."""

    epistemic: Array
    aleatoric: Array
    total: Array


class _Estimator(BaseEstimator):
    """What the regressor and the classifier share: parameters, training and prediction in standardised units."""

    def __init__(
        self,
        *,
        objective: str = "degp",
        members: int = 10,
        hidden_layers: tuple[int, ...] = (100, 100),
        alphas: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0),
        extra_points: int = 64,
        epsilon: float = 0.05,
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
        self.objective = objective
        self.members = members
        self.hidden_layers = hidden_layers
        self.alphas = alphas
        self.extra_points = extra_points
        self.epsilon = epsilon
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

    def _train(self, inputs: Array, targets: Tensor, num_classes: int | None, noise: str = "constant") -> Outcome:
        if len(inputs) < 2:
            raise ValueError(
                f"at least 2 rows are needed, one to train on and one to validate, but n_samples={len(inputs)}"
            )
        self.input_scaling_ = Standardiser.fit(_tensor(inputs))
        mesh = current()
        self.seed_ = mesh.world.agreed(self._seed())
        checkpoints = self._checkpoints(inputs, targets)
        generator = torch.Generator(self.device).manual_seed(self.seed_)
        outcome = train_on_table(
            Batch(self._standardised(inputs), targets.to(self.device)),
            num_classes,
            self._recipe(noise),
            checkpoints=checkpoints,
            mesh=mesh,
            generator=generator,
            progress=self.verbose,
        )
        if checkpoints is not None and mesh.is_first:
            discard(checkpoints)
        # float64 from here on: a row's prediction must not depend on the rows it is asked with, not even by rounding
        self.ensemble_, self.likelihood_ = outcome.selected.ensemble.double(), outcome.selected.likelihood
        self.alpha_ = outcome.alpha
        self.validation_nll_ = outcome.selected.validation_nll
        self.history_ = outcome.selected.history.records
        self.n_iter_ = len(self.history_)
        self.coefficients_: Coefficients | None = None
        return outcome

    def _seed(self) -> int:
        """Without a random state 0, if there is a checkpoint: a fit goes on only with its own validation rows."""
        unset = self.checkpoint is not None and self.random_state is None
        return int(check_random_state(0 if unset else self.random_state).randint(2**31))

    def _checkpoints(self, inputs: Array, targets: Tensor) -> Checkpoints | None:
        """Where to save; of a fit to other rows, or by other settings, there is nothing to go on with."""
        if self.checkpoint is None:
            return None
        settings = {name: str(v) for name, v in self.get_params().items() if name not in NOT_OF_A_FIT}
        rows = hashlib.sha256(np.ascontiguousarray(inputs).tobytes() + targets.numpy(force=True).tobytes()).hexdigest()
        return Checkpoints(self.checkpoint, every=200).of({**settings, "seed": self.seed_, "rows": rows})

    def _recipe(self, noise: str) -> Recipe:
        budget = Budget(self.max_epochs, self.batch_size, self.learning_rate, self.patience, self.max_seconds)
        return Recipe(
            method=self.objective,
            hidden_layers=tuple(self.hidden_layers),
            members=self.members,
            alphas=tuple(self.alphas),
            extra_points=self.extra_points,
            epsilon=self.epsilon,
            noise=noise,
            validation_fraction=self.validation_fraction,
            budget=budget,
        )

    def _predictive(self, inputs: Any) -> Predictive:
        """The prediction in standardised units: a Gaussian process for DE-GP or after an update, else a mixture."""
        check_is_fitted(self)
        X = validate_data(self, inputs, dtype=np.float64, reset=False)
        return self._predictive_at(self._standardised(X))

    def _predictive_at(self, points: Tensor) -> Predictive:
        points = points.double()
        if self.objective != "degp" and self.coefficients_ is None:
            return predict_mixture(self.ensemble_, points, self.likelihood_)
        generator = torch.Generator(self.device).manual_seed(self.seed_)  # the same answer each time it is asked
        return predict_process(
            self.ensemble_,
            points,
            self.likelihood_,
            diagonal=PointwiseAverage(self.epsilon),
            coefficients=self.coefficients_,
            generator=generator,
        )

    def _standardised(self, inputs: Array) -> Tensor:
        return self.input_scaling_.apply(_tensor(inputs)).float().to(self.device)


class DEGPRegressor(RegressorMixin, _Estimator):
    """A regressor whose error bars hold: a deep ensemble read as one Gaussian process.

    Inputs and targets are standardised inside, the prior's scales are set by the marginal likelihood, α is the largest
    that the validation rows do not speak against, and the noise is calibrated on them.

    Args:
        objective: "degp", or one of the baselines "de", "rde" and "rms".
        members: networks in the ensemble.
        hidden_layers: widths of each network's hidden layers.
        alphas: weights of the divergence to choose from, in growing order; all are trained side by side.
        extra_points: points a step, besides the batch, where the prior is met.
        epsilon: λ and jitter as a share of the mean variance.
        validation_fraction: share of the rows kept for choosing and calibrating; see `degp.data.hold_out_rows`.
        max_epochs: at most; `patience` epochs without progress end the training before. An epoch is a pass over the
            data, or 32 batches of rows drawn anew where there are more.
        batch_size: rows a step.
        learning_rate: of Adam.
        max_seconds: stop training after this time.
        device: "cpu" or "cuda".
        random_state: for everything random.
        checkpoint: folder where a broken-off fit is kept, and goes on from with the same rows and settings; it is
            emptied when the fit is done. Without a `random_state` the seed is then 0.
        verbose: show a progress bar.
        noise: "constant", or "input-dependent": an output of the network.

    Example:
        >>> model = DEGPRegressor(random_state=0).fit(X, y)
        >>> mean, std = model.predict(X, return_std=True)
    """

    def __init__(
        self,
        *,
        objective: str = "degp",
        members: int = 10,
        hidden_layers: tuple[int, ...] = (100, 100),
        alphas: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0),
        extra_points: int = 64,
        epsilon: float = 0.05,
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
        noise: str = "constant",
    ) -> None:
        super().__init__(
            objective=objective,
            members=members,
            hidden_layers=hidden_layers,
            alphas=alphas,
            extra_points=extra_points,
            epsilon=epsilon,
            validation_fraction=validation_fraction,
            max_epochs=max_epochs,
            patience=patience,
            batch_size=batch_size,
            learning_rate=learning_rate,
            max_seconds=max_seconds,
            device=device,
            random_state=random_state,
            checkpoint=checkpoint,
            verbose=verbose,
        )
        self.noise = noise

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> "DEGPRegressor":
        """Trains on rows X (N, D) and targets y, (N,) or (N, C)."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self.single_target_ = y.ndim == 1
        targets = _tensor(y).reshape(len(y), -1)
        self.target_scaling_ = Standardiser.fit(targets)
        outcome = self._train(X, self.target_scaling_.apply(targets).float(), None, self.noise)
        self.conformity_ = self._conformity(outcome.validation)
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
        self.conformity_ = self._conformity(Batch(self._standardised(X), self._standardised_targets(y)))
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

    def update(self, X: Any, y: Any) -> "DEGPRegressor":
        """Takes in new labels without training: conditions the Gaussian process on them, exactly, at the cost of M³."""
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=False)
        before, self.coefficients_ = self.coefficients_, None
        predictive = self._process(self._standardised(X))
        self.coefficients_ = predictive.posterior.coefficients(
            self._standardised_targets(y), predictive.aleatoric, before=before
        )
        return self

    def _process(self, points: Tensor) -> RegressionPredictive:
        points = points.double()
        predictive = predict_process(self.ensemble_, points, self.likelihood_, diagonal=PointwiseAverage(self.epsilon))
        assert isinstance(predictive, RegressionPredictive)
        return predictive

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
        scores = ((held_out.targets - predictive.mean).abs() / predictive.std).amax(1)
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

    def _standardised_targets(self, y: Array) -> Tensor:
        targets = _tensor(y).reshape(len(y), -1)
        return self.target_scaling_.apply(targets).float().to(self.device)

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
        self._train(X, torch.from_numpy(labels.astype(np.int64)), len(self.classes_))
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
