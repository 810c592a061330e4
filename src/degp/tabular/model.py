"""Models of tables: prepare rows for training, predict new ones, update on new labels."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float32, Shaped
from torch import Tensor

from degp.gaussian import Coefficients
from degp.predictive import RegressionPredictive
from degp.tabular.errors import TableError, TableWarning
from degp.tabular.estimators import DEGPClassifier, DEGPRegressor
from degp.tabular.preprocessing import Preprocessing
from degp.tabular.reading import Names, numbered, read_table, stream_table
from degp.tabular.saving import Estimator, Model, ModelError
from degp.tabular.targets import REGRESSION, Target

__all__ = [
    "RealPredictions",
    "TrainingRows",
    "UpdateSummary",
    "column_relevance",
    "encode_labelled",
    "encode_rows",
    "estimator_for",
    "predict_rows",
    "prepare",
    "read_rows",
    "real_predictions",
    "stream_rows",
    "target_of",
    "update_rows",
    "validation_nll",
]


@dataclass(frozen=True)
class TrainingRows:
    """A table ready for training: inputs and targets as numbers, and how they were made."""

    target: Target
    preprocessing: Preprocessing
    inputs: Float32[np.ndarray, "N D"]
    targets: Shaped[np.ndarray, "N *C"]


@dataclass(frozen=True)
class UpdateSummary:
    """How an update changed the members' coefficients z, which are N(0, I) after training, and the predictions.

    Attributes:
        rows: the number of new labels.
        shift: root mean square change of the means of z.
        std: root mean variance of z, before and after.
        epistemic_std: root mean epistemic variance at these rows, before and after.
        rmse: at these rows, before and after; of several targets, both in units of the targets' standard deviations.
    """

    rows: int
    shift: float
    std: tuple[float, float]
    epistemic_std: tuple[float, float]
    rmse: tuple[float, float]


def prepare(
    frame: pd.DataFrame,
    targets: str | Sequence[str],
    task: str | None = None,
    *,
    drop: Sequence[str] = (),
    header: bool = True,
) -> TrainingRows:
    """Infers the target's task, unless `task` is given, fits the preprocessing, and applies it.

    Args:
        targets: the column to predict, or several columns of numbers.
        drop: columns to leave out.
        header: whether the table had one; the model reads new tables alike.
    """
    chosen = Target.fit(frame, targets, task)
    clash = [name for name in drop if name in chosen.names]
    if clash:
        raise TableError(f"a column is either predicted or dropped, but {clash[0]!r} is to be both; leave out one")
    rows, values = chosen.split(frame)
    preprocessing = replace(Preprocessing.fit(rows, chosen.names, drop=drop), header=header)
    return TrainingRows(chosen, preprocessing, preprocessing.transform(rows), values)


def estimator_for(target: Target, settings: dict[str, Any]) -> Estimator:
    """An unfitted regressor or classifier."""
    return (DEGPRegressor if target.task == REGRESSION else DEGPClassifier)(**settings)


def read_rows(model: Model, table: Path) -> pd.DataFrame:
    """A whole table, read as the training table was."""
    return read_table(table, text=_text_columns(model), names=_names(model))


def stream_rows(model: Model, table: Path, *, text: Sequence[str] = (), chunk_rows: int) -> Iterator[pd.DataFrame]:
    """A table in chunks, read as the training table was; `text` are further columns to read as text."""
    return stream_table(table, text=[*_text_columns(model), *text], names=_names(model), chunk_rows=chunk_rows)


def validation_nll(estimator: Estimator) -> float:
    """The NLL on the validation rows, in the target's own units."""
    units = np.log(estimator.target_scaling_.std).sum() if isinstance(estimator, DEGPRegressor) else 0.0
    return float(estimator.validation_nll_ + units)


def encode_rows(model: Model, frame: pd.DataFrame) -> Float32[np.ndarray, "N D"]:
    """The estimator's inputs for new rows."""
    if model.preprocessing is None or model.target is None:
        raise ModelError(
            "a model of a table needs its preprocessing and its target, but it was saved without them; pass both to "
            "save_model"
        )
    return model.preprocessing.transform(frame)


def encode_labelled(
    model: Model, frame: pd.DataFrame
) -> tuple[pd.DataFrame, Float32[np.ndarray, "N D"], Shaped[np.ndarray, "N *C"]]:
    """The rows that have a target, the estimator's inputs for them, and their targets."""
    rows, targets = target_of(model).split(frame)
    if not len(rows):
        raise TableError(f"some rows must have {target_of(model).name!r}, but in all {len(frame)} it is missing")
    return rows, encode_rows(model, rows), targets.copy()  # pandas returns read-only arrays


def column_relevance(model: Model) -> dict[str, float] | None:
    """The share of each column in the squared distance of two rows under the prior, largest first; they sum to one.

    A column's share is Σ r² over its features (one-hot categories, cycles of a date, the indicator of missing cells),
    relative to all features; r is the estimator's `relevance_`. None if all features have the same relevance.
    """
    relevance = model.estimator.relevance_**2
    if model.preprocessing is None or np.allclose(relevance, relevance[0]):
        return None
    widths = [len(column.features) for column in model.preprocessing.columns]
    sums = [part.sum() / relevance.sum() for part in np.split(relevance, np.cumsum(widths)[:-1])]
    shares = dict(zip(model.preprocessing.names, map(float, sums), strict=True))
    return dict(sorted(shares.items(), key=lambda entry: -entry[1]))


def predict_rows(model: Model, frame: pd.DataFrame, *, level: float = 0.9, conformal: bool = False) -> pd.DataFrame:
    """Mean, standard deviations and interval of each row; or class, probabilities and uncertainty in nats.

    With several targets, the columns are named after them: `price_mean`, `price_lower`, and so on.

    Args:
        level: of the interval.
        conformal: widen or narrow the intervals so that they cover the validation rows at this level.
    """
    inputs, estimator = encode_rows(model, frame), model.estimator
    if isinstance(estimator, DEGPRegressor):
        predicted = real_predictions(estimator, inputs)
        interval = estimator.predict_interval(inputs, level, conformal=True) if conformal else predicted.interval(level)
        _warn_if_infinite(interval, estimator, level)
        columns = _by_target(
            target_of(model),
            {
                "mean": predicted.mean,
                "epistemic_std": np.sqrt(predicted.epistemic),
                "total_std": np.sqrt(predicted.total),
                "lower": interval[..., 0],
                "upper": interval[..., 1],
            },
        )
    else:
        if conformal:
            raise ValueError("conformal intervals are for numbers, but this model predicts classes; leave them out")
        labels, predictive = target_of(model).labels, estimator._class_predictive(inputs)
        probabilities = _array(predictive.probabilities)
        columns = {
            "prediction": np.array(labels, dtype=object)[probabilities.argmax(1)],
            **{f"probability_{label}": probabilities[:, place] for place, label in enumerate(labels)},
            "epistemic": _array(predictive.epistemic),
            "total": _array(predictive.total),
        }
    return pd.DataFrame(columns, index=frame.index)


def update_rows(model: Model, frame: pd.DataFrame) -> UpdateSummary:
    """Conditions the model on new labels, in place, and returns what changed."""
    estimator = model.estimator
    if not isinstance(estimator, DEGPRegressor):
        raise ValueError("only models of numbers can be updated, but this one predicts classes; fit it again")
    _, inputs, targets = encode_labelled(model, frame)
    unit = 1.0 if estimator.single_target_ else np.asarray(estimator.target_scaling_.std)

    def state() -> tuple[np.ndarray, float, float, float]:
        mean, std = _coefficient_moments(estimator.coefficients_, len(estimator.ensemble_))
        predicted = real_predictions(estimator, inputs)
        errors = (predicted.mean - targets) / unit
        return mean, std, _root_mean(predicted.epistemic / unit**2), _root_mean(errors**2)

    before = state()
    estimator.update(inputs, targets)
    after = state()
    shift = _root_mean((after[0] - before[0]) ** 2)
    pairs = [(old, new) for old, new in zip(before[1:], after[1:], strict=True)]
    return UpdateSummary(len(inputs), shift, *pairs)


@dataclass(frozen=True)
class RealPredictions:
    """Predictions of real targets in original units, (N,) or (N, C), from one evaluation of the members."""

    estimator: DEGPRegressor
    predictive: RegressionPredictive

    @property
    def mean(self) -> np.ndarray:
        """E[y]."""
        return self.estimator._original(self.predictive.mean)

    @property
    def epistemic(self) -> np.ndarray:
        """The variance that more data would remove."""
        return self.estimator._original_std(self.predictive.epistemic.sqrt()) ** 2

    @property
    def total(self) -> np.ndarray:
        """The variance of y, noise included."""
        return self.estimator._original_std(self.predictive.total.sqrt()) ** 2

    def interval(self, level: float) -> np.ndarray:
        """Lower and upper ends, on the last axis."""
        return np.stack([self.estimator._original(end) for end in self.predictive.interval(level)], axis=-1)


def real_predictions(estimator: DEGPRegressor, inputs: Float32[np.ndarray, "N D"]) -> RealPredictions:
    """The predictions of a regressor for encoded rows."""
    return RealPredictions(estimator, estimator._predictive(inputs))


def _array(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


def _warn_if_infinite(interval: np.ndarray, estimator: DEGPRegressor, level: float) -> None:
    if np.isinf(interval).any():
        warnings.warn(
            f"{len(estimator.conformity_)} validation rows are too few for conformal intervals of level {level:g}: "
            f"they are infinite",
            TableWarning,
            stacklevel=3,
        )


def _coefficient_moments(coefficients: Coefficients | None, members: int) -> tuple[np.ndarray, float]:
    """Means of z and the root of its mean variance, tr (LLᵀ)⁻¹ / M."""
    if coefficients is None:
        return np.zeros(members), 1.0
    variances = torch.cholesky_inverse(coefficients.precision_root).diagonal()
    return coefficients.mean.cpu().numpy(), float(variances.mean().sqrt())


def _root_mean(squares: np.ndarray) -> float:
    return float(np.sqrt(np.mean(squares)))


def target_of(model: Model) -> Target:
    """The model's target; raises ModelError if it was saved without it."""
    if model.target is None:
        raise ModelError("a model of a table needs its target, but it was saved without it; pass it to save_model")
    return model.target


def _by_target(target: Target, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns (N,), or with several targets one per target, from (N, C)."""
    if len(target.names) == 1:
        return columns
    return {
        f"{name}_{column}": values[:, place]
        for place, name in enumerate(target.names)
        for column, values in columns.items()
    }


def _text_columns(model: Model) -> list[str]:
    preprocessing, target = model.preprocessing, model.target
    return [*(preprocessing.text_columns if preprocessing else ()), *(target.text_columns if target else ())]


def _names(model: Model) -> Names | None:
    """Names for the columns of a file without a header, which may lack the targets; None if files have headers."""
    preprocessing = model.preprocessing
    if preprocessing is None or preprocessing.header:
        return None
    every = numbered(len(preprocessing.names) + len(preprocessing.ignored))
    inputs = [name for name in every if name not in target_of(model).names]

    def names(count: int) -> list[str]:
        if count not in (len(every), len(inputs)):
            raise TableError(
                f"the model was fitted without a header, so a table must have its {len(every)} columns in the same "
                f"order, or all but the target, but it has {count}; add or remove columns"
            )
        return every if count == len(every) else inputs

    return names
