"""The classifier for tables: calibrated probabilities and prediction sets."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y
from torch import Tensor

from degp.predictive import ClassPredictive, Predictive
from degp.tabular.class_process import ClassProcess
from degp.tabular.conformal import as_levels, conformal_quantile, mass_above, probable_set
from degp.tabular.estimator import Array, Estimator, Uncertainty, as_tensor
from degp.tabular.inputs import encode_inputs
from degp.tabular.weights import weighted_rows
from degp.typing import Batch

__all__ = ["DEGPClassifier"]


class DEGPClassifier(ClassifierMixin, Estimator):
    """A classifier with calibrated probabilities and the uncertainty behind them; arguments as in `DEGPRegressor`.

    Its probabilities are the average of those of the ensemble and of an exact Gaussian process per class, at the
    temperature that leave-one-out prediction prefers, unless held-out rows are clearly against the process.

    Example:
        >>> model = DEGPClassifier(random_state=0).fit(X, y)
        >>> model.predict_proba(X), model.uncertainty(X).epistemic
    """

    process_: ClassProcess | None

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
        self._weigh_features(self._search(self._batch(train), len(self.classes_), generator))
        train, validation = (self._batch(rows) for rows in (train, validation))
        fitted = self._train(train, validation, len(self.classes_), generator)
        self.conformity_ = np.empty(0)
        if fitted.held_out is not None:
            served = self._weigh_process(fitted.held_out, validation.to(device=self.device))
            self.conformity_ = self._conformity(served, validation.targets.numpy())
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
        """Calibrates conformal sets on rows not used for training: coverage then holds at any sample size."""
        check_is_fitted(self)
        X, y = self._checked(encode_inputs(self, X), y)
        unseen = ~np.isin(y, self.classes_)
        if unseen.any():
            raise ValueError(
                f"y must have classes of training, but row {int(unseen.argmax())} has {str(y[unseen][0])!r}, which is "
                f"none of the {len(self.classes_)}; leave such rows out"
            )
        predictive = self._predictive_at(self._standardised(as_tensor(X)))
        self.conformity_ = self._conformity(predictive, np.searchsorted(self.classes_, y))
        return self

    def uncertainty(self, X: Any) -> Uncertainty:
        """Nats of each row: mutual information (epistemic), expected entropy (aleatoric), entropy (total)."""
        predictive = self._class_predictive(X)
        parts = (predictive.epistemic, predictive.aleatoric, predictive.total)
        return Uncertainty(*(part.double().cpu().numpy() for part in parts))

    def _predictive_at(self, points: Tensor) -> ClassPredictive:
        """What is served: the ensemble, or its average with the exact process."""
        ensemble = super()._predictive_at(points)
        assert isinstance(ensemble, ClassPredictive)
        if self.process_ is None:
            return ensemble
        return self.process_.averaged(ensemble, self.process_.predictive(points.to(self.device)))

    def _weigh_process(self, ensemble: Predictive, held_out: Batch) -> ClassPredictive:
        """Leaves the process out or takes the held-out rows into it; the prediction of these rows before that."""
        assert isinstance(ensemble, ClassPredictive)
        if self.process_ is None or not self.process_.is_worth_averaging(ensemble, held_out):
            self.process_ = None
            return ensemble
        served = self.process_.averaged(ensemble, self.process_.predictive(held_out.inputs))
        self.process_ = self.process_.conditioned(held_out)
        return served

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
