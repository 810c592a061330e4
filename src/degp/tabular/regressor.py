"""The regressor for tables: real targets, error bars, joint samples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, check_X_y
from torch import Tensor

from degp.calibration import weighted_mean
from degp.data import Standardiser
from degp.prediction import evaluate
from degp.predictive import Predictive, RegressionPredictive, TransformedPredictive
from degp.tabular.conformal import as_levels, conformal_quantile
from degp.tabular.estimator import Array, Estimator, Uncertainty, as_tensor
from degp.tabular.fingerprints import fingerprints
from degp.tabular.fitting import CONSTANT, Fitted
from degp.tabular.inputs import encode_inputs
from degp.tabular.missing import MissingNoise
from degp.tabular.prior_choice import choose_units
from degp.tabular.prior_search import PriorSearch
from degp.tabular.process import Process
from degp.tabular.units import Units, candidate_transforms
from degp.tabular.weights import weighted_rows
from degp.transforms import Identity, Transform
from degp.typing import Batch

__all__ = ["DEGPRegressor"]


class DEGPRegressor(RegressorMixin, Estimator):
    """A regressor with calibrated error bars: a deep ensemble trained and used as one Gaussian process.

    X is an array, a data frame or a sparse matrix, of numbers, categories, booleans, dates and missing cells. Inputs
    and targets are standardised, the scales of the prior, among them the relevance of each feature, maximise its
    marginal likelihood, and one ensemble is trained on every row by Bayes' rule. Small tables are predicted by the
    average of the ensemble and the exact Gaussian process of the same kind of prior; targets without noise, such as a
    simulator's, by the exact process alone. See `process_weight_`.

    A single positive target, such as a price, is modelled by its log where leave-one-out prediction gains from it; see
    `target_transform_`. All results are in its own units, and its intervals are then positive and skewed.

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
            ensemble alone. Classifiers of C > 2 classes take √(2/C) as many; baselines and regressors with
            input-dependent noise ignore it.
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

    missing_noise_: MissingNoise
    process_: Process | None

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
        train, validation, generator = self._split(X, as_tensor(y).reshape(len(y), -1), weights)
        self._weigh_features(self._choose_units(train, generator))
        train, validation = (self._batch(rows) for rows in (train, validation))
        fitted = self._train(train, validation, None, generator)
        self._weigh_process(has_every_row=len(train) <= self.exact_rows)
        if len(validation) and self.process_ is not None:
            self.process_ = self.process_.conditioned(validation.to(device=self.device))
        self._score_held_out(fitted, validation)
        return self

    @property
    def target_transform_(self) -> Transform:
        """The transform that makes the target Gaussian: `Identity()` or `Log()`."""
        return self.units_.transform

    @property
    def target_scaling_(self) -> Standardiser:
        """Mean and standard deviation of the transformed target."""
        return self.units_.scaling

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Array | tuple[Array, Array]:
        """The expected target; with its standard deviation, or the joint covariance of all rows, noise included."""
        if return_std and return_cov:
            raise RuntimeError("at most one of return_std and return_cov can be asked for")
        predictive = self._predictive(X, joint=return_cov)
        mean = self._array(predictive.mean)
        if return_cov:
            return mean, self._array(predictive.covariances().movedim(0, -1))
        return (mean, self._array(predictive.std)) if return_std else mean

    def predict_interval(
        self, X: Any, level: float | Sequence[float] | Array = 0.9, *, conformal: bool = False
    ) -> Array:
        """Lower and upper ends (N, 2), or (N, C, 2): quantiles of the predictive distribution, or conformal.

        Args:
            level: the probability that an interval contains its target. L of them give (N, L, 2), or (N, C, L, 2), from
                one evaluation; an interval lies inside those of higher levels.
            conformal: mean ± q · std, of the log if that is modelled, with q the quantile of standardised errors: of
                validation rows, or of the exact process leaving one row out; `conformalize` takes unseen rows, for
                which coverage is guaranteed.
        """
        levels = as_levels(level)
        predictive = self._predictive(X)
        intervals = [self._interval(predictive, float(each), conformal) for each in levels]
        return intervals[0] if np.ndim(level) == 0 else np.stack(intervals, axis=-2)

    def conformalize(self, X: Any, y: Any) -> "DEGPRegressor":
        """Calibrates conformal intervals on rows not used for training: coverage then holds at any sample size."""
        rows = self._labelled(X, y)
        self.conformity_ = self._conformity(self._predictive_at(rows.inputs), rows.targets)
        return self

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int | None = 0) -> Array:
        """Joint draws of the targets of all rows, (N, n_samples) or (N, C, n_samples)."""
        seed = int(check_random_state(random_state).randint(2**31))
        generator = torch.Generator(self.device).manual_seed(seed)
        draws = self._predictive(X, joint=True).sample(n_samples, generator=generator)
        return np.moveaxis(self._array(draws), 0, -1)

    def uncertainty(self, X: Any) -> Uncertainty:
        """Variances of each row: what more data would remove, what would remain, and their sum."""
        predictive = self._predictive(X)
        parts = (predictive.epistemic, predictive.aleatoric, predictive.total)
        return Uncertainty(*map(self._array, parts))

    @torch.no_grad()
    def update(self, X: Any, y: Any) -> "DEGPRegressor":
        """Takes in new labels without training: conditions the Gaussian process on them, exactly, at the cost of M³."""
        new = self._labelled(X, y).to(device=self.device)
        self.fingerprints_ = np.append(self.fingerprints_, fingerprints(encode_inputs(self, X), np.asarray(y)))
        before = self.method_.predictive(evaluate(self.ensemble_, new.inputs.double()))
        assert isinstance(before, RegressionPredictive)
        before = self.missing_noise_.widen(before, new.inputs)
        self.coefficients_ = before.posterior.coefficients(new.targets, before.aleatoric, before=self.coefficients_)
        self.process_ = self.process_ and self.process_.conditioned(new)
        return self

    def _predictive(self, inputs: Any, *, joint: bool = False) -> TransformedPredictive:
        """In the target's own units; `joint` keeps all covariances."""
        check_is_fitted(self)
        served = self._predictive_at(self._standardised(as_tensor(encode_inputs(self, inputs))), joint=joint)
        return self.units_.predictive(served)

    def _predictive_at(self, points: Tensor, *, joint: bool = False) -> RegressionPredictive:
        """What is served, in standardised units: the ensemble, the exact process, or their average."""
        if self.process_ is None or self.process_weight_ == 0:
            return self._ensemble_predictive(points)
        points = points.to(self.device)
        process = self.missing_noise_.widen(self.process_.predictive(points, joint=joint), points)
        return (
            process if self.process_weight_ == 1 else self.process_.averaged(self._ensemble_predictive(points), process)
        )

    def _ensemble_predictive(self, points: Tensor) -> RegressionPredictive:
        predictive = super()._predictive_at(points)
        assert isinstance(predictive, RegressionPredictive)
        return self.missing_noise_.widen(predictive, points.to(self.device))

    def _choose_units(self, train: Batch, generator: torch.Generator) -> PriorSearch:
        """Learns in which units the target is Gaussian; returns the search for the prior of targets in them.

        Input-dependent noise stands for what the log and larger noise of rows with missing cells would explain.
        """
        is_constant = self.noise == CONSTANT
        transforms = candidate_transforms(train.targets) if is_constant else [Identity()]
        candidates = [Units.fit(transform, train.targets, train.weights) for transform in transforms]
        search = self._search(replace(train, inputs=self._standardised(train.inputs)), None, generator)
        choice = choose_units(candidates, search, self.preprocessing_.indicators if is_constant else ())
        self.units_, self.missing_noise_ = choice.units, choice.noise
        return choice.search

    def _weigh_process(self, *, has_every_row: bool) -> None:
        if self.process_ is not None:
            rows = self.process_.rows
            nll = -self._ensemble_predictive(rows.inputs).log_prob(rows.targets).mean()
            self.process_ = self.process_.weighed_against(float(nll), has_every_row=has_every_row)

    def _score_held_out(self, fitted: Fitted, validation: Batch) -> None:
        """The NLL and the standardised errors of rows that a prediction has not seen: validation, or leave-one-out.

        The NLL is in units of `target_scaling_.std`.
        """
        self.conformity_ = np.empty(0)
        if fitted.held_out is not None:
            assert isinstance(fitted.held_out, RegressionPredictive)
            held_out = self.missing_noise_.widen(fitted.held_out, validation.inputs.to(self.device))
            self.conformity_ = self._conformity(held_out, validation.targets)
            self.validation_nll_ += self._mean_log_slope(validation)
        elif self.process_ is not None:
            self.conformity_ = np.sort(self.process_.leave_one_out_scores().cpu().numpy())
            self.validation_nll_ = float(self.process_.leave_one_out_nll().mean())
            self.validation_nll_ += self._mean_log_slope(self.process_.rows)

    def _mean_log_slope(self, rows: Batch) -> float:
        """What the transform adds to the NLL of standardised rows; 0 for the identity."""
        slope = self.target_transform_.log_slope(self.target_scaling_.undo(rows.targets.double())).sum(1)
        return float(weighted_mean(slope, rows.weights))

    def _conformity(self, predictive: Predictive, targets: Tensor) -> Array:
        """Sorted |y − m| / std of rows that were not trained on, the largest over a row's targets."""
        assert isinstance(predictive, RegressionPredictive)
        scores = ((targets.to(self.device) - predictive.mean).abs() / predictive.std).amax(1)
        return np.sort(scores.cpu().numpy())

    def _interval(self, predictive: TransformedPredictive, level: float, conformal: bool) -> Array:
        """The ends of one level, in original units."""
        if conformal:
            low, high = predictive.around(torch.tensor(conformal_quantile(self.conformity_, level)))
        else:
            low, high = predictive.interval(level)
        return np.stack([self._array(low), self._array(high)], axis=-1)

    def _checked(self, inputs: Array, y: Any) -> tuple[Array, Array]:
        """Inputs and targets as arrays, if they belong together."""
        kind = np.asarray(y).dtype
        if kind.kind in "USmM":
            raise ValueError(
                f"y must have numbers, but its type is {kind}; convert it, as by y.astype(float), or fit a "
                f"DEGPClassifier if it has classes"
            )
        return check_X_y(inputs, y, dtype=(np.float64, np.float32), multi_output=True, y_numeric=True, estimator=self)

    def _labelled(self, X: Any, y: Any) -> Batch:
        """New rows and their targets in standardised units."""
        check_is_fitted(self)
        X, y = self._checked(encode_inputs(self, X), y)
        return self._batch(Batch(as_tensor(X), as_tensor(y).reshape(len(y), -1)))

    def _batch(self, rows: Batch) -> Batch:
        """Rows in original units, standardised, and weighted by their noise."""
        inputs, targets = self._standardised(rows.inputs), self.units_.apply(rows.targets).float()
        return self.missing_noise_.weigh(replace(rows, inputs=inputs, targets=targets))

    def _array(self, values: Tensor) -> Array:
        """Of predictions, whose last axis is that of the targets."""
        array = values.double().cpu().numpy()
        return array[..., 0] if self.single_target_ else array
