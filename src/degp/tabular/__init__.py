"""Tables: from a CSV or Parquet file to numbers, in the same way for training and for new rows.

    frame = read_table("houses.csv")
    target = Target.fit(frame, "price")                     # the task, and the labels of classes
    rows, targets = target.split(frame)                     # only rows with a target
    preprocessing = Preprocessing.fit(rows, target.name)    # the encoding of each column
    inputs = preprocessing.transform(rows)                  # float32 (N, D), finite

Both records are plain JSON: `write_json(path, preprocessing.to_json())`; after `Preprocessing.from_json` new rows are
transformed bit-for-bit equally. The estimators are in `degp.sklearn`.
"""

try:
    import pandas as _pandas  # noqa: F401
except ModuleNotFoundError:
    raise ImportError("tables need pandas: pip install 'degp[sklearn]'") from None

from degp.tabular.errors import TableError, TableWarning
from degp.tabular.preprocessing import Preprocessing
from degp.tabular.reading import read_table, stream_table
from degp.tabular.targets import Target, infer_task

__all__ = [
    "Preprocessing",
    "TableError",
    "TableWarning",
    "Target",
    "infer_task",
    "read_table",
    "stream_table",
]
