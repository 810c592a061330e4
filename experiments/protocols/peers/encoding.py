"""Encodings of tables for methods without their own: one-hot or ordinal categories, imputed and scaled numbers."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

__all__ = ["category_codes", "class_columns", "numeric_columns", "one_hot", "with_missing_category"]


def one_hot(features: pd.DataFrame, categorical: tuple[str, ...]) -> Any:
    """A fitted scikit-learn transformer to standardised numbers.

    Missing numbers become the median, with an indicator. Each category has a column, and so have missing ones; a
    category that training did not have is 0 in all of them.
    """
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (numbers, numeric_columns(features, categorical)), (categories, list(categorical))
    )
    return columns.fit(with_missing_category(features, categorical))


def numeric_columns(features: pd.DataFrame, categorical: tuple[str, ...]) -> list[str]:
    """The other columns."""
    return [name for name in features if name not in categorical]


def with_missing_category(features: pd.DataFrame, categorical: tuple[str, ...]) -> pd.DataFrame:
    """Categories as text, "missing" among them."""
    text = {name: features[name].astype(object).where(features[name].notna(), "missing") for name in categorical}
    return features.assign(**text)


def category_codes(features: pd.DataFrame, categorical: tuple[str, ...]) -> tuple[Float[np.ndarray, "N K"], list[int]]:
    """Codes of the categories, the last one for missing cells, and the number of codes of each column."""
    counts = [len(features[name].cat.categories) for name in categorical]
    codes = [features[name].cat.codes.to_numpy(np.int64) for name in categorical]
    filled = [np.where(code < 0, count, code) for code, count in zip(codes, counts, strict=True)]
    return np.stack(filled, axis=1), [count + 1 for count in counts]


def class_columns(
    probabilities: Float[np.ndarray, "N K"], classes: np.ndarray, num_classes: int
) -> Float[np.ndarray, "N C"]:
    """The columns in the order of all classes; one that training did not have gets 0."""
    columns = np.zeros((len(probabilities), num_classes))
    columns[:, np.asarray(classes, dtype=int)] = probabilities
    return columns
