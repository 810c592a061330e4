"""Tables: from a CSV or Parquet file to numbers, and how to do it again.

    frame = read_table("houses.csv")
    target = Target.fit(frame, "price")                     # the task, and labels where there are classes
    rows, targets = target.split(frame)                     # rows without a target stay out
    preprocessing = Preprocessing.fit(rows, target.name)    # what each column becomes
    inputs = preprocessing.transform(rows)                  # float32 (N, D), finite

Both records are plain JSON: `write_json(path, preprocessing.to_json())`, and `Preprocessing.from_json` does the same
to new rows, bit for bit.
"""

try:
    import pandas as _pandas  # noqa: F401
except ModuleNotFoundError:
    raise ImportError("tables need pandas: pip install 'degp[sklearn]'") from None

from degp.tables.errors import TableError as TableError
from degp.tables.errors import TableWarning as TableWarning
from degp.tables.preprocessing import Preprocessing as Preprocessing
from degp.tables.reading import read_table as read_table
from degp.tables.reading import stream_table as stream_table
from degp.tables.targets import Target as Target
from degp.tables.targets import infer_task as infer_task
