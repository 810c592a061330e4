"""① Data: arrays to batches, splits and standardisation."""

from degp.data.arrays import as_batch, check_inputs, check_weights
from degp.data.splits import hold_out_rows, kfold, subset
from degp.data.standardise import Standardiser
from degp.data.toy import sine

__all__ = [
    "Standardiser",
    "as_batch",
    "check_inputs",
    "check_weights",
    "hold_out_rows",
    "kfold",
    "sine",
    "subset",
]
