"""Levels of intervals and sets, split-conformal quantiles, and sets of classes."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64

__all__ = ["as_levels", "conformal_quantile", "mass_above", "probable_set"]


def as_levels(level: float | Sequence[float] | np.ndarray) -> Float64[np.ndarray, " L"]:
    """One or several levels as an array; raises ValueError if one is not a probability."""
    levels = np.atleast_1d(np.asarray(level, dtype=np.float64))
    if levels.ndim > 1 or not len(levels):
        raise ValueError(f"level must be a number or a list of numbers, but its shape is {np.shape(level)}")
    for value in levels:
        if not 0 < value < 1:
            raise ValueError(f"level is a probability between 0 and 1, but it is {value}; 0.9 is a 90 % interval")
    return levels


def conformal_quantile(scores: Float[np.ndarray, " N"], level: float) -> float:
    """The ⌈(N + 1) · level⌉-th of the sorted scores of N held-out rows; infinite if they are too few.

    The score of an exchangeable row exceeds it with probability at most 1 − level, at any N.
    """
    rank = math.ceil((len(scores) + 1) * level)
    return float(scores[rank - 1]) if rank <= len(scores) else math.inf


def mass_above(probabilities: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N K"]:
    """The probability of all classes that rank before each class; 0 for the most probable one.

    a(x, y) = Σ_{y' before y} p(y' | x), in the order of falling probability, equals in the order of their columns.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    before = np.hstack([np.zeros((len(ranked), 1)), np.cumsum(ranked, axis=1)[:, :-1]])
    mass = np.empty_like(before)
    np.put_along_axis(mass, order, before, axis=1)
    return mass


def probable_set(probabilities: Float[np.ndarray, "N K"], level: float) -> Bool[np.ndarray, "N K"]:
    """The smallest set of classes with a probability of at least `level`: {y : a(x, y) < level}."""
    return mass_above(probabilities) < level
