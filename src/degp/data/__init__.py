"""① Data: arrays at the door, mini-batches, and data sets by name."""

from degp.data.arrays import as_batch as as_batch
from degp.data.arrays import check_inputs as check_inputs
from degp.data.records import DataSet as DataSet
from degp.data.registry import data_set as data_set
from degp.data.registry import describe_all as describe_all
from degp.data.registry import locate as locate
from degp.data.sine import sine as sine
from degp.data.sources import DataSetError as DataSetError
from degp.data.splits import kfold as kfold
from degp.data.splits import subset as subset
from degp.data.standardise import Standardiser as Standardiser
from degp.data.uci import UCI_NAMES as UCI_NAMES
from degp.data.uci import uci as uci
