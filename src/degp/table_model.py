"""Models of tables: learn from rows, predict new ones, judge the predictions, take in new labels."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float32, Shaped
from sklearn.base import clone

from degp.files import new_file
from degp.gaussian import Coefficients
from degp.report import evaluate_classification, evaluate_regression
from degp.saving import Estimator, Model, ModelError
from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.tables import Preprocessing, TableError, TableWarning, Target, stream_table


@dataclass(frozen=True)
class Rows:
    """A table that can be learned from: what is to be predicted, the way to numbers, and the numbers."""

    target: Target
    preprocessing: Preprocessing
    inputs: Float32[np.ndarray, "N D"]
    targets: Shaped[np.ndarray, " N"]


@dataclass(frozen=True)
class Movement:
    """How an update moved the coefficients z of the members, which are N(0, I) after training, and the predictions.

    Attributes:
        rows: how many labels were taken in.
        shift: root mean square by which the means of z moved.
        std: root mean variance of z, before and after.
        epistemic_std: root mean epistemic variance at these rows, before and after.
        rmse: at these rows, before and after.
    """

    rows: int
    shift: float
    std: tuple[float, float]
    epistemic_std: tuple[float, float]
    rmse: tuple[float, float]


def prepare(frame: pd.DataFrame, target: str, task: str | None = None) -> Rows:
    """Everything that training needs of a table; `task` overrides what the target's values suggest."""
    chosen = Target.fit(frame, target, task)
    rows, targets = chosen.split(frame)
    preprocessing = Preprocessing.fit(rows, target)
    return Rows(chosen, preprocessing, preprocessing.transform(rows), targets)


def estimator_for(target: Target, settings: dict[str, Any]) -> Estimator:
    """A regressor or a classifier that is yet to be fitted; a classifier knows no `noise`."""
    if target.task == "regression":
        return DEGPRegressor(**settings)
    return DEGPClassifier(**{name: value for name, value in settings.items() if name != "noise"})


def validation_nll(estimator: Estimator) -> float:
    """Of the chosen variant on the rows that it was chosen by, before calibration, in the target's own units."""
    scores = np.array(estimator.validation_nll_)
    if estimator.alpha_ is not None:
        alphas = list(estimator.alphas)
        scores = scores.reshape(len(alphas), -1)[alphas.index(estimator.alpha_)]
    units = np.log(estimator.target_scaling_.std).sum() if isinstance(estimator, DEGPRegressor) else 0.0
    return float(scores.min() + units)


def read_new(model: Model, frame: pd.DataFrame) -> Float32[np.ndarray, "N D"]:
    """The estimator's inputs for new rows."""
    if model.preprocessing is None or model.target is None:
        raise ModelError(
            "a model of a table needs its preprocessing and its target, but it was saved without them; pass both to "
            "save_model"
        )
    return model.preprocessing.transform(frame)


def read_labelled(
    model: Model, frame: pd.DataFrame
) -> tuple[pd.DataFrame, Float32[np.ndarray, "N D"], Shaped[np.ndarray, " N"]]:
    """The rows that have a target, the estimator's inputs for them, and their targets."""
    rows, targets = _target(model).split(frame)
    if not len(rows):
        raise TableError(f"some rows must have {_target(model).name!r}, but in all {len(frame)} it is missing")
    return rows, read_new(model, rows), targets.copy()  # pandas hands out arrays that must not be written to


def text_columns(model: Model) -> list[str]:
    """Columns that `read_table` and `stream_table` should leave as they are written."""
    preprocessing, target = model.preprocessing, model.target
    return [*(preprocessing.text_columns if preprocessing else ()), *(target.text_columns if target else ())]


def predict_rows(model: Model, frame: pd.DataFrame, *, level: float = 0.9, conformal: bool = False) -> pd.DataFrame:
    """Mean, error bars and interval of each row; or class, probabilities and uncertainty in nats.

    Args:
        level: of the interval.
        conformal: intervals as wide as the errors on validation rows ask for.
    """
    inputs, estimator = read_new(model, frame), model.estimator
    spread = estimator.uncertainty(inputs)
    if isinstance(estimator, DEGPRegressor):
        interval = estimator.predict_interval(inputs, level, conformal=conformal)
        if np.isinf(interval).any():
            held_out = len(estimator.conformity_)
            warnings.warn(
                f"{held_out} validation rows are too few for conformal intervals of level {level:g}: they are infinite",
                TableWarning,
                stacklevel=2,
            )
        columns = {
            "mean": estimator.predict(inputs),
            "epistemic_std": np.sqrt(spread.epistemic),
            "total_std": np.sqrt(spread.total),
            "lower": interval[..., 0],
            "upper": interval[..., 1],
        }
    else:
        if conformal:
            raise ValueError("conformal intervals are for numbers, but this model predicts classes; leave them out")
        labels, probabilities = _target(model).labels, estimator.predict_proba(inputs)
        columns = {
            "prediction": np.array(labels, dtype=object)[probabilities.argmax(1)],
            **{f"probability_{label}": probabilities[:, place] for place, label in enumerate(labels)},
            "epistemic": spread.epistemic,
            "total": spread.total,
        }
    return pd.DataFrame(columns, index=frame.index)


def predict_file(
    model: Model,
    table: Path,
    out: Path,
    *,
    level: float = 0.9,
    conformal: bool = False,
    name_column: str | None = None,
    chunk_rows: int = 10_000,
) -> int:
    """Predictions for a file of any length in the memory of one chunk, written whole or not at all; how many.

    Args:
        out: a .csv or .parquet file.
        name_column: a column of the table that is kept as it is written, in front.
    """
    write = _writer(out)
    if out.exists() and out.samefile(table):
        raise ValueError(f"predictions must not take the place of the table {table}; choose another name for them")
    kept = [] if name_column is None else [name_column]
    chunks = stream_table(table, text=[*text_columns(model), *kept], chunk_rows=chunk_rows)
    predictions = (
        _beside(chunk, predict_rows(model, chunk, level=level, conformal=conformal), kept) for chunk in chunks
    )
    first = next(predictions)  # before any file is made: most faults of a table show in its first rows
    with new_file(out) as draft:
        return write(draft, first, predictions)


def evaluate_rows(
    model: Model, frame: pd.DataFrame, *, level: float = 0.9, resamples: int = 500, generator: torch.Generator
) -> dict[str, Any]:
    """How far the predictions can be trusted on rows whose targets are known; see `degp.report`."""
    rows, inputs, targets = read_labelled(model, frame)
    estimator, target = model.estimator, _target(model)
    spread = estimator.uncertainty(inputs)
    if isinstance(estimator, DEGPRegressor):
        return evaluate_regression(
            estimator.predict(inputs),
            spread.epistemic,
            spread.total,
            targets,
            level=level,
            resamples=resamples,
            generator=generator,
        )
    names, probabilities = [str(label) for label in target.labels], estimator.predict_proba(inputs)
    return evaluate_classification(
        probabilities, spread.epistemic, targets, names, resamples=resamples, generator=generator
    )


def plain_ensemble(model: Model, frame: pd.DataFrame, *, verbose: bool = False) -> Model:
    """A deep ensemble trained on the same table with the model's own settings, seed and preprocessing."""
    _, inputs, targets = read_labelled(model, frame)
    estimator = clone(model.estimator).set_params(objective="de", checkpoint=None, verbose=verbose)
    return replace(model, estimator=estimator.fit(inputs, targets))


def update_rows(model: Model, frame: pd.DataFrame) -> Movement:
    """Conditions the model on new labels, in place, and says what changed."""
    estimator = model.estimator
    if not isinstance(estimator, DEGPRegressor):
        raise ValueError("only models of numbers can be updated, but this one predicts classes; fit it again")
    _, inputs, targets = read_labelled(model, frame)

    def state() -> tuple[np.ndarray, float, float, float]:
        mean, std = _moments(estimator.coefficients_, len(estimator.ensemble_))
        epistemic = _root_mean(estimator.uncertainty(inputs).epistemic)
        error = _root_mean((estimator.predict(inputs) - targets) ** 2)
        return mean, std, epistemic, error

    before = state()
    estimator.update(inputs, targets)
    after = state()
    shift = _root_mean((after[0] - before[0]) ** 2)
    pairs = [(old, new) for old, new in zip(before[1:], after[1:], strict=True)]
    return Movement(len(inputs), shift, *pairs)


def _moments(coefficients: Coefficients | None, members: int) -> tuple[np.ndarray, float]:
    """Means of z and the root of its mean variance, tr (LLᵀ)⁻¹ / M."""
    if coefficients is None:
        return np.zeros(members), 1.0
    variances = torch.cholesky_inverse(coefficients.precision_root).diagonal()
    return coefficients.mean.cpu().numpy(), float(variances.mean().sqrt())


def _root_mean(squares: np.ndarray) -> float:
    return float(np.sqrt(np.mean(squares)))


def _target(model: Model) -> Target:
    if model.target is None:
        raise ModelError("a model of a table needs its target, but it was saved without it; pass it to save_model")
    return model.target


def _beside(chunk: pd.DataFrame, predictions: pd.DataFrame, kept: list[str]) -> pd.DataFrame:
    """The kept columns, then the predictions."""
    clash = [name for name in kept if name in predictions]
    if clash:
        raise TableError(f"the column {clash[0]!r} has the name of a prediction; rename it to keep it")
    missing = [name for name in kept if name not in chunk]
    if missing:
        raise TableError(f"the table must have the column {missing[0]!r} to keep it, but has none of that name")
    return pd.concat([chunk[kept], predictions], axis=1)


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
