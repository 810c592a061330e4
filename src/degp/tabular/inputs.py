"""What `fit` and `predict` are given: arrays, data frames or sparse matrices, as rows of numbers.

An array, or a data frame, of finite numbers is taken as it is. Anything else goes through the preprocessing of the
command line: missing cells, text, categories, booleans and dates. In data frames columns are found by their names.
"""

import warnings
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import assert_all_finite, check_array, validate_data

from degp.tabular.errors import TableError, TableWarning
from degp.tabular.preprocessing import EncodedRows, Preprocessing
from degp.tabular.sparse import to_dense

__all__ = ["as_table", "encode_inputs", "learn_inputs", "positional_names"]

Table: TypeAlias = np.ndarray | pd.DataFrame


def learn_inputs(estimator: BaseEstimator, X: Any, y: Any) -> EncodedRows:
    """Training rows as numbers, with the preprocessing that this took; sets the names of scikit-learn's contract."""
    if isinstance(X, EncodedRows):
        estimator.n_features_in_ = len(X.preprocessing.names)
        estimator.feature_names_in_ = np.array(X.preprocessing.names, dtype=object)
        return X
    table = as_table(X, estimator)
    validate_data(estimator, table, y, skip_check_array=True)
    frame = _named(estimator, table)
    if _is_plain(table):
        return Preprocessing.plain(frame).encode(frame)
    preprocessing = Preprocessing.fit(frame)
    _warn_of_ignored(preprocessing)
    return preprocessing.encode(frame)


def encode_inputs(estimator: BaseEstimator, X: Any) -> Float[np.ndarray, "N D"]:
    """New rows as numbers: data frames by the names of their columns, everything else by position."""
    preprocessing: Preprocessing = estimator.preprocessing_
    if isinstance(X, EncodedRows):
        if X.preprocessing != preprocessing:
            raise ValueError("rows must be encoded by the model's own preprocessing, but these are by another one")
        return X.values
    table = as_table(X, estimator)
    if not (_has_names(table) and hasattr(estimator, "feature_names_in_")):
        validate_data(estimator, table, reset=False, skip_check_array=True)
        if isinstance(table, np.ndarray) and preprocessing.is_plain and not np.isnan(table).any():
            return np.ascontiguousarray(table)  # the last bits of a product depend on the layout
        table = _named(estimator, table)
    return preprocessing.transform(table)


def as_table(X: Any, estimator: BaseEstimator | None = None) -> Table:
    """Numbers in float64, NaN where one is missing; or a data frame, if X is one or has cells that are no numbers."""
    if issparse(X):
        X = to_dense(X)
    frame = _as_frame(X)
    if frame is not None:
        if not all(frame.shape):
            raise TableError(
                f"a table must have rows and columns, but there are 0 sample(s) or 0 feature(s): its shape is "
                f"{frame.shape} while a minimum of 1 is required"
            )
        frame = frame.reset_index(drop=True)  # errors number the rows from 0
        for place in np.flatnonzero([dtype.kind == "U" for dtype in frame.dtypes]):  # text of pyarrow
            frame.isetitem(place, frame.iloc[:, place].astype(object))
        return frame
    array = check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator, input_name="X")
    if array.dtype.kind in "mM":
        return pd.DataFrame(array)
    try:
        numbers = array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        return pd.DataFrame(array).infer_objects()
    assert_all_finite(numbers, allow_nan=True, input_name="X")
    return numbers


def positional_names(count: int) -> list[str]:
    """Names of columns that have none: x0, x1, …"""
    return [f"x{place}" for place in range(count)]


def _as_frame(X: Any) -> pd.DataFrame | None:
    """X, if it is a data frame: of pandas, or of a library that exports Arrow or converts itself, such as polars."""
    if isinstance(X, pd.DataFrame):
        return X
    if hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns"):
        import pyarrow

        return pyarrow.table(X).to_pandas(date_as_object=False)
    return X.to_pandas() if hasattr(X, "to_pandas") and hasattr(X, "columns") else None


def _is_plain(table: Table) -> bool:
    """Whether every cell is a number; raises ValueError if one of them is infinite."""
    if isinstance(table, np.ndarray):
        return not np.isnan(table).any()
    if not all(dtype.kind in "biuf" for dtype in table.dtypes) or table.isna().any(axis=None):
        return False
    check_array(table, dtype=np.float64, input_name="X")
    return True


def _has_names(table: Table) -> bool:
    return isinstance(table, pd.DataFrame) and all(isinstance(name, str) for name in table.columns)


def _named(estimator: BaseEstimator, table: Table) -> pd.DataFrame:
    """The table under the names of its columns; without any, x0, x1, …"""
    names = getattr(estimator, "feature_names_in_", None)
    columns = positional_names(table.shape[1]) if names is None else list(names)
    if isinstance(table, pd.DataFrame):
        return table.set_axis(columns, axis=1)
    return pd.DataFrame(table, columns=columns, copy=False)


def _warn_of_ignored(preprocessing: Preprocessing) -> None:
    if preprocessing.ignored:
        notes = [note for note in preprocessing.notes if ": left out, " in note]
        message = f"columns carry no information and are ignored: {'; '.join(notes)}"
        warnings.warn(message, TableWarning, stacklevel=5)
