"""Models of tables: prepare rows for training, predict new ones, evaluate predictions, update on new labels."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Shaped
from sklearn.base import clone
from torch import Tensor

from degp.gaussian import Coefficients
from degp.methods import Kind
from degp.predictive import RegressionPredictive
from degp.report import evaluate_classification, evaluate_regression
from degp.runtime.files import new_file
from degp.tabular.errors import TableError, TableWarning, require_columns, summed_warnings
from degp.tabular.estimators import DEGPClassifier, DEGPRegressor
from degp.tabular.preprocessing import EncodedRows, Preprocessing
from degp.tabular.reading import stream_table
from degp.tabular.saving import Estimator, Model, ModelError
from degp.tabular.targets import REGRESSION, Target

__all__ = [
    "TrainingRows",
    "UpdateSummary",
    "encode_labelled",
    "encode_rows",
    "estimator_for",
    "evaluate_rows",
    "plain_ensemble",
    "predict_file",
    "predict_rows",
    "prepare",
    "text_columns",
    "update_rows",
    "validation_nll",
]


@dataclass(frozen=True)
class TrainingRows:
    """A table ready for training: inputs for `fit`, its targets or labels, and how they were made."""

    target: Target
    inputs: EncodedRows
    targets: Shaped[np.ndarray, " N"]

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
        rmse: at these rows, before and after.
    """

    rows: int
    shift: float
    std: tuple[float, float]
    epistemic_std: tuple[float, float]
    rmse: tuple[float, float]


def prepare(frame: pd.DataFrame, target: str, task: str | None = None) -> TrainingRows:
    """Infers the target's task, unless `task` is given, fits the preprocessing, and applies it."""
    chosen = Target.fit(frame, target, task)
    rows, targets = chosen.split(frame)
    return TrainingRows(chosen, Preprocessing.fit(rows, target).encode(rows), _as_labels(chosen, targets))


def estimator_for(target: Target, settings: dict[str, Any]) -> Estimator:
    """An unfitted regressor or classifier."""
    return (DEGPRegressor if target.task == REGRESSION else DEGPClassifier)(**settings)


def validation_nll(estimator: Estimator) -> float:
    """The NLL on the validation rows, in the target's own units."""
    units = np.log(estimator.target_scaling_.std).sum() if isinstance(estimator, DEGPRegressor) else 0.0
    return float(estimator.validation_nll_ + units)


def encode_rows(model: Model, frame: pd.DataFrame) -> EncodedRows:
    """The estimator's inputs for new rows."""
    return model.preprocessing.encode(frame)


def encode_labelled(model: Model, frame: pd.DataFrame) -> tuple[pd.DataFrame, EncodedRows, Shaped[np.ndarray, " N"]]:
    """The rows that have a target, the estimator's inputs for them, and their targets: numbers, or places of labels."""
    rows, targets = _target(model).split(frame)
    if not len(rows):
        raise TableError(f"some rows must have {_target(model).name!r}, but in all {len(frame)} it is missing")
    return rows, encode_rows(model, rows), targets.copy()  # pandas returns read-only arrays


def text_columns(model: Model) -> list[str]:
    """Columns that `read_table` and `stream_table` should read as text."""
    return [*model.preprocessing.text_columns, *(model.target.text_columns if model.target else ())]


def predict_rows(model: Model, frame: pd.DataFrame, *, level: float = 0.9, conformal: bool = False) -> pd.DataFrame:
    """Mean, standard deviations and interval of each row; or class, probabilities and uncertainty in nats.

    Args:
        level: of the interval.
        conformal: widen or narrow the intervals so that they cover the validation rows at this level.
    """
    inputs, estimator = encode_rows(model, frame), model.estimator
    if isinstance(estimator, DEGPRegressor):
        predicted = _real_predictions(estimator, inputs)
        interval = estimator.predict_interval(inputs, level, conformal=True) if conformal else predicted.interval(level)
        _warn_if_infinite(interval, estimator, level)
        columns = {
            "mean": predicted.mean,
            "epistemic_std": np.sqrt(predicted.epistemic),
            "total_std": np.sqrt(predicted.total),
            "lower": interval[..., 0],
            "upper": interval[..., 1],
        }
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


def predict_file(
    model: Model,
    table: Path,
    out: Path,
    *,
    level: float = 0.9,
    conformal: bool = False,
    id_column: str | None = None,
    chunk_rows: int = 10_000,
) -> int:
    """Writes predictions for a file of any length, atomically, in the memory of one chunk; returns their number.

    Args:
        out: a .csv or .parquet file.
        id_column: a column of the table to copy, as text, in front of the predictions.
    """
    write = _writer(out)
    if out.exists() and out.samefile(table):
        raise ValueError(f"predictions must not overwrite the table {table}; choose another name for them")
    copied = [] if id_column is None else [id_column]
    chunks = stream_table(table, text=[*text_columns(model), *copied], chunk_rows=chunk_rows)
    predictions = (
        _with_columns(chunk, copied, predict_rows(model, chunk, level=level, conformal=conformal)) for chunk in chunks
    )
    with summed_warnings():
        first = next(predictions)  # before a file is created: most errors in a table show in its first rows
        with new_file(out) as draft:
            return write(draft, first, predictions)


def evaluate_rows(
    model: Model, frame: pd.DataFrame, *, level: float = 0.9, resamples: int = 500, generator: torch.Generator
) -> dict[str, Any]:
    """Accuracy and calibration of the predictions on rows whose targets are known; see `degp.report`."""
    _, inputs, targets = encode_labelled(model, frame)
    estimator = model.estimator
    if isinstance(estimator, DEGPRegressor):
        predicted = _real_predictions(estimator, inputs)
        return evaluate_regression(
            predicted.mean,
            predicted.epistemic,
            predicted.total,
            targets,
            level=level,
            resamples=resamples,
            generator=generator,
        )
    predictive, names = estimator._class_predictive(inputs), [str(label) for label in _target(model).labels]
    probabilities, epistemic = _array(predictive.probabilities), _array(predictive.epistemic)
    return evaluate_classification(probabilities, epistemic, targets, names, resamples=resamples, generator=generator)


def plain_ensemble(model: Model, frame: pd.DataFrame, *, verbose: bool = False) -> Model:
    """A deep ensemble trained on the same table with the model's settings, seed and preprocessing."""
    _, inputs, targets = encode_labelled(model, frame)
    estimator = clone(model.estimator).set_params(method=Kind.DE.value, checkpoint=None, verbose=verbose)
    return replace(model, estimator=estimator.fit(inputs, _as_labels(_target(model), targets)))


def update_rows(model: Model, frame: pd.DataFrame) -> UpdateSummary:
    """Conditions the model on new labels, in place, and returns what changed."""
    estimator = model.estimator
    if not isinstance(estimator, DEGPRegressor):
        raise ValueError("only models of numbers can be updated, but this one predicts classes; fit it again")
    _, inputs, targets = encode_labelled(model, frame)

    def state() -> tuple[np.ndarray, float, float, float]:
        mean, std = _coefficient_moments(estimator.coefficients_, len(estimator.ensemble_))
        predicted = _real_predictions(estimator, inputs)
        return mean, std, _root_mean(predicted.epistemic), _root_mean((predicted.mean - targets) ** 2)

    before = state()
    estimator.update(inputs, targets)
    after = state()
    shift = _root_mean((after[0] - before[0]) ** 2)
    pairs = [(old, new) for old, new in zip(before[1:], after[1:], strict=True)]
    return UpdateSummary(len(inputs), shift, *pairs)


@dataclass(frozen=True)
class _RealPredictions:
    """Predictions of real targets in original units, from one evaluation of the members."""

    estimator: DEGPRegressor
    predictive: RegressionPredictive

    @property
    def mean(self) -> np.ndarray:
        return self.estimator._original(self.predictive.mean)

    @property
    def epistemic(self) -> np.ndarray:
        return self.estimator._original_std(self.predictive.epistemic.sqrt()) ** 2

    @property
    def total(self) -> np.ndarray:
        return self.estimator._original_std(self.predictive.total.sqrt()) ** 2

    def interval(self, level: float) -> np.ndarray:
        return np.stack([self.estimator._original(end) for end in self.predictive.interval(level)], axis=-1)


def _real_predictions(estimator: DEGPRegressor, inputs: EncodedRows) -> _RealPredictions:
    return _RealPredictions(estimator, estimator._predictive(inputs))


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


def _target(model: Model) -> Target:
    if model.target is None:
        raise ModelError(
            "the name of the target's column must be known, but the model was saved without it; fit it to a named "
            "pandas.Series, or pass the target to save_model"
        )
    return model.target


def _as_labels(target: Target, targets: Shaped[np.ndarray, " N"]) -> Shaped[np.ndarray, " N"]:
    """Numbers as they are, places of labels as the labels."""
    return targets if target.task == REGRESSION else np.array(target.labels)[targets]


def _with_columns(chunk: pd.DataFrame, copied: list[str], predictions: pd.DataFrame) -> pd.DataFrame:
    """Columns of the table, then the predictions."""
    require_columns(copied, list(chunk), where="the table")
    clash = [name for name in copied if name in predictions]
    if clash:
        raise TableError(f"a copied column must not have the name of a prediction, but {clash[0]!r} has; rename it")
    return pd.concat([chunk[copied], predictions], axis=1)


Write = Callable[[Path, pd.DataFrame, Iterator[pd.DataFrame]], int]


def _writer(path: Path) -> Write:
    writers: dict[str, Write] = {".csv": _write_csv, ".parquet": _write_parquet}
    if path.suffix.lower() not in writers:
        raise ValueError(f"predictions are written to a .csv or .parquet file, but this is {path}; choose one of these")
    return writers[path.suffix.lower()]


def _write_csv(path: Path, first: pd.DataFrame, rest: Iterator[pd.DataFrame]) -> int:
    with path.open("w", encoding="utf-8", newline="") as file:
        first.to_csv(file, index=False, float_format="%.9g")
        count = len(first)
        for chunk in rest:
            chunk.to_csv(file, index=False, header=False, float_format="%.9g")
            count += len(chunk)
    return count


def _write_parquet(path: Path, first: pd.DataFrame, rest: Iterator[pd.DataFrame]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(first, preserve_index=False)
    with pq.ParquetWriter(path, table.schema) as file:
        file.write_table(table)
        count = len(first)
        for chunk in rest:
            file.write_table(pa.Table.from_pandas(chunk, schema=table.schema, preserve_index=False))
            count += len(chunk)
    return count
