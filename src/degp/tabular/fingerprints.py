"""Fingerprints of rows, by which a model recognises those that it was trained on."""

import hashlib

import numpy as np
from jaxtyping import Int64, Shaped

__all__ = ["fingerprints"]


def fingerprints(inputs: Shaped[np.ndarray, "N D"], targets: Shaped[np.ndarray, "N *C"]) -> Int64[np.ndarray, "N"]:
    """Eight bytes per row: equal for equal inputs and targets, and otherwise different but for one pair in 10¹⁹.

    Example:
        >>> first, second, third = fingerprints(np.array([[1.0], [1.0], [2.0]]), np.array([0, 0, 0]))
        >>> first == second, first == third
        (np.True_, np.False_)
    """
    columns = (inputs, targets.reshape(len(inputs), -1))
    rows = np.concatenate(columns, axis=1, dtype=np.float64, casting="unsafe") + 0.0  # −0 and 0 are equal
    digests = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, np.int64).copy()
