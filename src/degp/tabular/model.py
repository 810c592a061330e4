"""Models of tables: prepare rows for training, predict new ones, update on new labels."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Shaped
from torch import Tensor

from degp.gaussian import Coefficients
from degp.predictive import TransformedPredictive
from degp.tabular.classifier import DEGPClassifier
from degp.tabular.errors import TableError, TableWarning
from degp.tabular.preprocessing import EncodedRows, Preprocessing
from degp.tabular.reading import Names, numbered, read_table, stream_table
from degp.tabular.regressor import DEGPRegressor
from degp.tabular.saving import Estimator, Model, ModelError
from degp.tabular.targets import REGRESSION, Target

__all__ = [
    "RealPredictions",
    "TrainingRows",
    "UpdateSummary",
    "as_labels",
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
    """A table ready for training: inputs for `fit`, its targets or labels, and how they were made.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> rows = prepare(frame, "price")
        >>> estimator = DEGPRegressor(random_state=0).fit(rows.inputs, rows.targets)
        >>> rows.target.task, rows.preprocessing.names
        ('regression', ('size',))
    """

    target: Target
    inputs: EncodedRows
    targets: Shaped[np.ndarray, "N *C"]

    @property
    def preprocessing(self) -> Preprocessing:
        """From rows to inputs."""
        return self.inputs.preprocessing


@dataclass(frozen=True)
class UpdateSummary:
    """How an update changed the members' coefficients z, which are N(0, I) after training, and the predictions.

    Attributes:
        rows: the number of new labels.
        shift: root mean square change of the means of z.
        std: root mean variance of z, before and after.
        epistemic_std: root mean epistemic variance at these rows, before and after.
        rmse: at these rows, before and after; of several targets, both in units of the targets' standard deviations.

    Example:
        >>> rows = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> model = Model(DEGPRegressor(random_state=0).fit(rows[["size"]], rows.price), Target.fit(rows, "price"), {})
        >>> summary = update_rows(model, pd.DataFrame({"size": [30, 40], "price": [30, 40]}))
        >>> summary.epistemic_std[1] < summary.epistemic_std[0]  # after, before
        True
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

    Example:
        >>> frame = pd.DataFrame({"size": [50, 80, 65], "door": [1, 2, 3], "sold": ["yes", "no", None]})
        >>> rows = prepare(frame, "sold", drop=["door"])
        >>> rows.preprocessing.names, rows.targets.tolist()
        (('size',), ['yes', 'no'])
    """
    chosen = Target.fit(frame, targets, task)
    clash = [name for name in drop if name in chosen.names]
    if clash:
        raise TableError(f"a column is either predicted or dropped, but {clash[0]!r} is to be both; leave out one")
    rows, values = chosen.split(frame)
    preprocessing = replace(Preprocessing.fit(rows, chosen.names, drop=drop), header=header)
    return TrainingRows(chosen, preprocessing.encode(rows), as_labels(chosen, values))


def estimator_for(target: Target, settings: dict[str, Any]) -> Estimator:
    """An unfitted regressor or classifier.

    Example:
        >>> target = Target.fit(pd.DataFrame({"sold": ["yes", "no", "no"]}), "sold")
        >>> type(estimator_for(target, {"preset": "fast", "random_state": 0})).__name__
        'DEGPClassifier'
    """
    return (DEGPRegressor if target.task == REGRESSION else DEGPClassifier)(**settings)


def read_rows(model: Model, table: Path) -> pd.DataFrame:
    """A whole table, read as the training table was.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> model = Model(DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"]), None, {})
        >>> frame.to_csv("houses.csv", index=False)
        >>> read_rows(model, Path("houses.csv")).equals(frame)
        True
    """
    return read_table(table, text=_text_columns(model), names=_names(model))


def stream_rows(model: Model, table: Path, *, text: Sequence[str] = (), chunk_rows: int) -> Iterator[pd.DataFrame]:
    """A table in chunks, read as the training table was; `text` are further columns to read as text.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> model = Model(DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"]), None, {})
        >>> frame.to_csv("houses.csv", index=False)
        >>> [len(predict_rows(model, chunk)) for chunk in stream_rows(model, Path("houses.csv"), chunk_rows=10)]
        [10, 10, 4]
    """
    return stream_table(table, text=[*_text_columns(model), *text], names=_names(model), chunk_rows=chunk_rows)


def validation_nll(estimator: Estimator) -> float:
    """The NLL of the rows that were held out, or left out one by one, in the target's own units.

    Example:
        >>> candidates = [DEGPRegressor(random_state=seed).fit(X, Y[:, 0]) for seed in (0, 1)]
        >>> best = min(candidates, key=validation_nll)
    """
    units = np.log(estimator.target_scaling_.std).sum() if isinstance(estimator, DEGPRegressor) else 0.0
    return float(estimator.validation_nll_ + units)


def encode_rows(model: Model, frame: pd.DataFrame) -> EncodedRows:
    """The estimator's inputs for new rows.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> model = Model(DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"]), None, {})
        >>> inputs = encode_rows(model, pd.DataFrame({"size": [30, 40]}))
        >>> inputs.shape, model.estimator.predict(inputs).shape
        ((2, 1), (2,))
    """
    return model.preprocessing.encode(frame)


def encode_labelled(model: Model, frame: pd.DataFrame) -> tuple[pd.DataFrame, EncodedRows, Shaped[np.ndarray, "N *C"]]:
    """The rows that have a target, the estimator's inputs for them, and their targets: numbers, or places of labels.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> estimator = DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"])
        >>> model = Model(estimator, Target.fit(frame, "price"), {})
        >>> rows, inputs, targets = encode_labelled(model, pd.DataFrame({"size": [30, 40], "price": [None, 41.5]}))
        >>> targets.tolist()
        [41.5]
    """
    rows, targets = target_of(model).split(frame)
    if not len(rows):
        raise TableError(f"some rows must have {target_of(model).name!r}, but in all {len(frame)} it is missing")
    return rows, encode_rows(model, rows), targets.copy()  # pandas returns read-only arrays


def as_labels(target: Target, targets: Shaped[np.ndarray, "N *C"]) -> Shaped[np.ndarray, "N *C"]:
    """Targets for `fit`: numbers as they are, places of labels as the labels.

    Example:
        >>> target = Target.fit(pd.DataFrame({"sold": ["yes", "no", "no"]}), "sold")
        >>> as_labels(target, np.array([1, 0])).tolist()
        ['yes', 'no']
    """
    return targets if target.task == REGRESSION else np.array(target.labels)[targets]


def column_relevance(model: Model) -> dict[str, float] | None:
    """The share of each column in the squared distance of two rows under the prior, largest first; they sum to one.

    It is s² / Σ s² with the estimator's `feature_relevance_` s. None if all inputs have the same relevance, which then
    ranks no columns.

    Example:
        >>> frame = pd.DataFrame({"door": [3, 1, 2] * 8, "size": range(24), "price": range(24)})
        >>> estimator = DEGPRegressor(random_state=0).fit(frame[["door", "size"]], frame["price"])
        >>> list(column_relevance(Model(estimator, Target.fit(frame, "price"), {})))
        ['size', 'door']
    """
    relevance = model.estimator.relevance_
    if np.allclose(relevance, relevance[0]):
        return None
    squares = {name: model.estimator.feature_relevance_[name] ** 2 for name in model.preprocessing.names}
    shares = {name: square / sum(squares.values()) for name, square in squares.items()}
    return dict(sorted(shares.items(), key=lambda entry: -entry[1]))


def predict_rows(model: Model, frame: pd.DataFrame, *, level: float = 0.9, conformal: bool = False) -> pd.DataFrame:
    """Mean, standard deviations and interval of each row; or class, probabilities and uncertainty in nats.

    With several targets, the columns are named after them: `price_mean`, `price_lower`, and so on.

    Args:
        level: of the interval.
        conformal: widen or narrow the intervals so that they cover the validation rows at this level.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> model = Model(DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"]), None, {})
        >>> list(predict_rows(model, pd.DataFrame({"size": [30, 40]}), level=0.95))
        ['mean', 'epistemic_std', 'total_std', 'lower', 'upper']
    """
    inputs, estimator = encode_rows(model, frame), model.estimator
    if isinstance(estimator, DEGPRegressor):
        predicted = real_predictions(estimator, inputs)
        interval = estimator.predict_interval(inputs, level, conformal=True) if conformal else predicted.interval(level)
        _warn_if_infinite(interval, estimator, level)
        columns = _by_target(
            model,
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
        labels, predictive = estimator.classes_, estimator._class_predictive(inputs)
        probabilities = _array(predictive.probabilities)
        columns = {
            "prediction": labels.astype(object)[probabilities.argmax(1)],
            **{f"probability_{label}": probabilities[:, place] for place, label in enumerate(labels)},
            "epistemic": _array(predictive.epistemic),
            "total": _array(predictive.total),
        }
    return pd.DataFrame(columns, index=frame.index)


def update_rows(model: Model, frame: pd.DataFrame) -> UpdateSummary:
    """Conditions the model on new labels, in place, and returns what changed.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> estimator = DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"])
        >>> model = Model(estimator, Target.fit(frame, "price"), {})
        >>> update_rows(model, pd.DataFrame({"size": [30, 40], "price": [30, 40]})).rows
        2
    """
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
    """Predictions of real targets in original units, (N,) or (N, C), from one evaluation of the members.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> rows = prepare(frame, "price")
        >>> predicted = real_predictions(DEGPRegressor(random_state=0).fit(rows.inputs, rows.targets), rows.inputs)
        >>> bool((predicted.epistemic <= predicted.total).all())
        True
    """

    estimator: DEGPRegressor
    predictive: TransformedPredictive

    @property
    def mean(self) -> np.ndarray:
        """E[y]."""
        return self.estimator._array(self.predictive.mean)

    @property
    def epistemic(self) -> np.ndarray:
        """The variance that more data would remove."""
        return self.estimator._array(self.predictive.epistemic)

    @property
    def total(self) -> np.ndarray:
        """The variance of y, noise included."""
        return self.estimator._array(self.predictive.total)

    @property
    def gaussian(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, epistemic and total variance of the transformed y; see `DEGPRegressor.target_transform_`."""
        g = self.predictive.gaussian
        mean, epistemic, total = map(self.estimator._array, (g.mean, g.epistemic, g.total))
        return mean, epistemic, total

    def interval(self, level: float) -> np.ndarray:
        """Lower and upper ends, on the last axis."""
        return np.stack([self.estimator._array(end) for end in self.predictive.interval(level)], axis=-1)


def real_predictions(estimator: DEGPRegressor, inputs: EncodedRows) -> RealPredictions:
    """The predictions of a regressor for encoded rows.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> rows = prepare(frame, "price")
        >>> predicted = real_predictions(DEGPRegressor(random_state=0).fit(rows.inputs, rows.targets), rows.inputs)
        >>> predicted.mean.shape, predicted.interval(0.9).shape
        ((24,), (24, 2))
    """
    return RealPredictions(estimator, estimator._predictive(inputs))


def _array(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


def _warn_if_infinite(interval: np.ndarray, estimator: DEGPRegressor, level: float) -> None:
    if np.isinf(interval).any():
        warnings.warn(
            f"{len(estimator.conformity_)} rows are too few for conformal intervals of level {level:g}: "
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
    """The model's target; raises ModelError if it was saved without it.

    Example:
        >>> frame = pd.DataFrame({"size": range(24), "price": range(24)})
        >>> estimator = DEGPRegressor(random_state=0).fit(frame[["size"]], frame["price"])
        >>> model = Model(estimator, Target.fit(frame, "price"), {})
        >>> target_of(model).name
        'price'
    """
    if model.target is None:
        raise ModelError(
            "the name of the target's column must be known, but the model was saved without it; fit it to a named "
            "pandas.Series, or pass the target to save_model"
        )
    return model.target


def _by_target(model: Model, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns (N,), or with several targets one per target, from (N, C)."""
    if columns["mean"].ndim == 1:
        return columns
    return {
        f"{name}_{column}": values[:, place]
        for place, name in enumerate(target_of(model).names)
        for column, values in columns.items()
    }


def _text_columns(model: Model) -> list[str]:
    return [*model.preprocessing.text_columns, *(model.target.text_columns if model.target else ())]


def _names(model: Model) -> Names | None:
    """Names for the columns of a file without a header, which may lack the targets; None if files have headers."""
    preprocessing = model.preprocessing
    if preprocessing.header:
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
