"""Models of tables on labelled rows: accuracy, calibration, and the same of baselines trained on the same table."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int64, Shaped
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import cross_val_predict
from sklearn.multioutput import MultiOutputRegressor

from degp.methods import Kind
from degp.report import evaluate_classification, evaluate_regression
from degp.report.evaluation import Evaluation, nothing
from degp.report.verdict import Finding, seen_rule, training_rule
from degp.tabular.model import as_labels, encode_labelled, real_predictions, target_of
from degp.tabular.regressor import DEGPRegressor
from degp.tabular.saving import Model
from degp.tabular.targets import Target
from degp.training import Ending

__all__ = ["Baseline", "evaluate_baseline", "evaluate_rows", "plain_ensemble", "simple_baselines", "training_findings"]

FOLDS = 5
FEW_SEEN = 0.05  # of the rows may equal rows of training, by chance or as repeated measurements
PENALTIES = np.logspace(-3, 3, 13)
Baseline = Callable[[Float[np.ndarray, "N D"]], tuple[np.ndarray, np.ndarray]]  # inputs ↦ what `_evaluate` takes


def evaluate_rows(
    model: Model,
    frame: pd.DataFrame,
    *,
    level: float = 0.9,
    resamples: int = 500,
    generator: torch.Generator,
    tick: Callable[[], object] = nothing,
) -> dict[str, Evaluation]:
    """Accuracy and calibration of the predictions of each target, on rows where it is known; see `degp.report`.

    Args:
        tick: called 2 × `resamples` times per target, to show progress.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> estimator = DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"])
        >>> model = Model(estimator, Target.fit(frame, "price"), {})
        >>> evaluation = evaluate_rows(model, frame + 0.5, resamples=20, generator=torch.Generator().manual_seed(0))
        >>> round(evaluation["price"]["metrics"]["r2"]["value"], 3)
        1.0
    """
    _, inputs, targets = encode_labelled(model, frame)
    estimator, target = model.estimator, target_of(model)
    known = int(estimator._is_known(inputs.values, _as_fitted(model, targets)).sum())
    findings = [*training_findings(model), *([seen_rule(known, len(inputs))] if known > FEW_SEEN * len(inputs) else [])]
    options = {"resamples": resamples, "generator": generator, "tick": tick, "findings": findings}
    if isinstance(estimator, DEGPRegressor):
        predicted = real_predictions(estimator, inputs)
        columns = (*predicted.gaussian, targets)
        return _evaluate_numbers(target, columns, transform=estimator.target_transform_, level=level, **options)
    predictive = estimator._class_predictive(inputs)
    probabilities, epistemic = (t.double().cpu().numpy() for t in (predictive.probabilities, predictive.epistemic))
    return _evaluate_classes(target, (probabilities, epistemic, targets), **options)


def training_findings(model: Model) -> list[Finding]:
    """What the verdict should say about the training: that it was cut off.

    Example:
        >>> estimator = DEGPRegressor(steps=1000, max_seconds=1e-6, random_state=0).fit(X, Y[:, 0])
        >>> [finding.grade for finding in training_findings(Model(estimator, None, {}))]
        ['caution']
    """
    estimator = model.estimator
    if estimator.ending_ != Ending.TIME:
        return []
    last = estimator.history_[-1]
    return [training_rule(last["step"], estimator.planned_steps_, last["seconds"])]


def plain_ensemble(model: Model, frame: pd.DataFrame, *, verbose: bool = False) -> Model:
    """A deep ensemble trained on the same table with the model's settings, seed and preprocessing.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> estimator = DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"])
        >>> model = Model(estimator, Target.fit(frame, "price"), {})
        >>> plain_ensemble(model, frame).estimator.method
        'de'
    """
    _, inputs, targets = encode_labelled(model, frame)
    estimator = clone(model.estimator).set_params(method=Kind.DE.value, checkpoint=None, verbose=verbose)
    return replace(model, estimator=estimator.fit(inputs, as_labels(target_of(model), targets)))


def simple_baselines(model: Model, frame: pd.DataFrame) -> dict[str, Baseline]:
    """Gradient boosting and a linear model of scikit-learn with default settings, trained on the same table, by name.

    A baseline of numbers predicts with a constant error bar, the RMSE of five-fold cross-validation.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> estimator = DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"])
        >>> model = Model(estimator, Target.fit(frame, "price"), {})
        >>> list(simple_baselines(model, frame))
        ['Gradient boosting', 'Linear regression']
    """
    _, encoded, targets = encode_labelled(model, frame)
    inputs = encoded.values
    if isinstance(model.estimator, DEGPRegressor):
        boosting, linear = HistGradientBoostingRegressor(random_state=0), RidgeCV(PENALTIES)
        several = MultiOutputRegressor(boosting) if targets.ndim > 1 else boosting
        return {
            "Gradient boosting": _number_baseline(several, inputs, targets),
            "Linear regression": _number_baseline(linear, inputs, targets),
        }
    count = len(target_of(model).labels)
    return {
        "Gradient boosting": _class_baseline(HistGradientBoostingClassifier(random_state=0), inputs, targets, count),
        "Logistic regression": _class_baseline(LogisticRegression(max_iter=1000), inputs, targets, count),
    }


def evaluate_baseline(
    baseline: Baseline,
    model: Model,
    frame: pd.DataFrame,
    *,
    level: float = 0.9,
    resamples: int = 500,
    generator: torch.Generator,
    tick: Callable[[], object] = nothing,
) -> dict[str, Evaluation]:
    """A baseline of this model on the same rows; the arguments are those of `evaluate_rows`.

    Example:
        >>> rows = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> model = Model(DEGPRegressor(random_state=0).fit(rows[["size"]], rows.price), Target.fit(rows, "price"), {})
        >>> linear, seeded = simple_baselines(model, rows)["Linear regression"], torch.Generator().manual_seed(0)
        >>> evaluation = evaluate_baseline(linear, model, rows + 0.5, resamples=20, generator=seeded)
        >>> round(evaluation["price"]["metrics"]["r2"]["value"], 3)
        1.0
    """
    _, inputs, targets = encode_labelled(model, frame)
    first, second = baseline(inputs.values)
    options = {"resamples": resamples, "generator": generator, "tick": tick}
    if isinstance(model.estimator, DEGPRegressor):
        columns = (first, np.zeros_like(first), second, targets)
        return _evaluate_numbers(target_of(model), columns, level=level, **options)
    return _evaluate_classes(target_of(model), (first, second, targets), **options)


def _as_fitted(model: Model, targets: Shaped[np.ndarray, "N *C"]) -> Shaped[np.ndarray, "N *C"]:
    """Targets as `fit` saw them: numbers, or places of classes."""
    if isinstance(model.estimator, DEGPRegressor):
        return targets
    return np.searchsorted(model.estimator.classes_, as_labels(target_of(model), targets))


def _number_baseline(estimator: Any, inputs: Float[np.ndarray, "N D"], targets: Shaped[np.ndarray, "N *C"]) -> Baseline:
    """Means, and constant variances."""
    folds = min(FOLDS, len(inputs))
    errors = cross_val_predict(clone(estimator), inputs, targets, cv=folds) - targets
    variance = np.maximum(np.mean(errors**2, axis=0), np.finfo(np.float64).tiny)
    estimator.fit(inputs, targets)

    def predict(new: Float[np.ndarray, "N D"]) -> tuple[np.ndarray, np.ndarray]:
        mean = estimator.predict(new)
        return mean, np.broadcast_to(variance, mean.shape).copy()

    return predict


def _class_baseline(
    estimator: Any, inputs: Float[np.ndarray, "N D"], targets: Int64[np.ndarray, " N"], count: int
) -> Baseline:
    """Probabilities, 0 for a class that the table does not have, and no epistemic part."""
    estimator.fit(inputs, targets)

    def predict(new: Float[np.ndarray, "N D"]) -> tuple[np.ndarray, np.ndarray]:
        probabilities = np.zeros((len(new), count))
        probabilities[:, estimator.classes_] = estimator.predict_proba(new)
        return probabilities, np.zeros(len(new))

    return predict


def _evaluate_numbers(target: Target, columns: tuple[np.ndarray, ...], **options: Any) -> dict[str, Evaluation]:
    """One evaluation per target, from mean, epistemic variance, total variance and truth, (N,) or (N, C)."""
    each = [column.reshape(len(column), -1) for column in columns]
    return {
        name: evaluate_regression(*(column[:, place] for column in each), **options)
        for place, name in enumerate(target.names)
    }


def _evaluate_classes(
    target: Target, columns: tuple[np.ndarray, np.ndarray, np.ndarray], **options: Any
) -> dict[str, Evaluation]:
    """The evaluation of the one target, from probabilities, epistemic uncertainty and labels."""
    probabilities, epistemic, labels = columns
    names = [str(label) for label in target.labels]
    return {target.name: evaluate_classification(probabilities, epistemic, labels, names, **options)}
