"""Tables for comparing methods, by name: UCI sets, those of scikit-learn, and simulated ones."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import RandomState

from experiments.data import simulators
from experiments.data.regression_tables import UCI_NAMES, uci

__all__ = ["CLASSIFICATION", "MAX_ROWS", "REGRESSION", "TABLES", "Table", "table"]

MAX_ROWS = 4000
Columns = tuple[pd.DataFrame, np.ndarray]


@dataclass(frozen=True, eq=False)
class Table:
    """One row per point.

    Attributes:
        features: numbers, with NaN where missing, and columns of dtype "category".
        target: real numbers, or classes 0, 1, ….
        num_classes: None for regression.
    """

    name: str
    features: pd.DataFrame
    target: np.ndarray
    num_classes: int | None

    @property
    def categorical(self) -> tuple[str, ...]:
        """Names of the categorical columns."""
        return tuple(self.features.select_dtypes("category").columns)

    def __len__(self) -> int:
        return len(self.target)


@lru_cache(maxsize=4)
def table(name: str) -> Table:
    """A table of at most MAX_ROWS rows; of a larger one a fixed random part, in random order."""
    features, target = TABLES[name]()
    if len(target) > MAX_ROWS:
        rows = RandomState(0).permutation(len(target))[:MAX_ROWS]
        features, target = features.iloc[rows].reset_index(drop=True), target[rows]
    return Table(name, features, target, int(target.max()) + 1 if name in CLASSIFICATION else None)


def _uci(name: str) -> Columns:
    batch = uci(name)
    inputs = batch.inputs.double().numpy()
    return pd.DataFrame(inputs, columns=[f"x{d}" for d in range(inputs.shape[1])]), batch.targets[:, 0].double().numpy()


def _sklearn(name: str, dtype: Any) -> Columns:
    from sklearn import datasets

    features, target = getattr(datasets, f"load_{name}")(return_X_y=True, as_frame=True)
    return features.astype(float), target.to_numpy().astype(dtype)


REGRESSION: dict[str, Callable[[], Columns]] = {
    **{name: partial(_uci, name) for name in UCI_NAMES},
    "diabetes": partial(_sklearn, "diabetes", np.float64),
    "friedman1": partial(simulators.friedman, 1),
    "friedman2": partial(simulators.friedman, 2),
    "friedman3": partial(simulators.friedman, 3),
    "borehole": simulators.borehole,
    "wing-weight": simulators.wing_weight,
    "heteroscedastic": simulators.heteroscedastic,
    "heavy-tails": simulators.heavy_tails,
    "steps": simulators.steps,
    "rents": simulators.rents,
}
CLASSIFICATION: dict[str, Callable[[], Columns]] = {
    "breast-cancer": partial(_sklearn, "breast_cancer", np.int64),
    "wine": partial(_sklearn, "wine", np.int64),
    "iris": partial(_sklearn, "iris", np.int64),
    "digits": partial(_sklearn, "digits", np.int64),
    "census": simulators.census,
    "classification": simulators.overlapping_classes,
    "moons": simulators.moons,
}
TABLES = REGRESSION | CLASSIFICATION
