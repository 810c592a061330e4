"""What every method has in common: `fit(features, targets, task)` returns a predictor of distributions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from degp.transforms import Transform

__all__ = ["LEVEL", "Fit", "Interval", "Normal", "Prediction", "Predictor", "Probabilities", "Task", "Transformed"]

LEVEL = 0.9  # of every interval


@dataclass(frozen=True)
class Task:
    """What a method is told besides the rows.

    Attributes:
        categorical: columns with categories; the others are numbers. Cells of both may be missing.
        num_classes: targets are 0, …, num_classes − 1; None for real targets.
        seed: for everything random.
        steps: for our estimators; None is their own default. Only smoke tests set it.
    """

    categorical: tuple[str, ...]
    num_classes: int | None
    seed: int = 0
    steps: int | None = None


@dataclass(frozen=True, eq=False)
class Normal:
    """A Gaussian for the target of each row."""

    mean: Float[np.ndarray, "N"]
    std: Float[np.ndarray, "N"]


@dataclass(frozen=True, eq=False)
class Transformed:
    """A Gaussian for the transformed target of each row, and the expected target.

    Attributes:
        location, scale: mean and standard deviation of the transformed target.
    """

    mean: Float[np.ndarray, "N"]
    location: Float[np.ndarray, "N"]
    scale: Float[np.ndarray, "N"]
    transform: Transform


@dataclass(frozen=True, eq=False)
class Interval:
    """The expected target of each row, and an interval that should hold it with probability LEVEL.

    Attributes:
        smallest_std: for the Gaussian that the interval implies, where both ends coincide.
    """

    mean: Float[np.ndarray, "N"]
    low: Float[np.ndarray, "N"]
    high: Float[np.ndarray, "N"]
    smallest_std: float


@dataclass(frozen=True, eq=False)
class Probabilities:
    """The probability of each class for each row."""

    values: Float[np.ndarray, "N C"]


Prediction = Normal | Transformed | Interval | Probabilities
Predictor = Callable[[pd.DataFrame], Prediction]
Fit = Callable[[pd.DataFrame, np.ndarray, Task], Predictor]
