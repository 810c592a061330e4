"""① Data: arrays at the door, mini-batches, and data sets by name."""

from degp.data.arrays import as_batch as as_batch
from degp.data.arrays import check_inputs as check_inputs
from degp.data.sine import sine as sine
