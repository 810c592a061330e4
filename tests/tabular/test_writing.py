"""Files of predictions: those of the rows, in chunks as at once, and complete or not there."""

import warnings

import numpy as np
import pandas as pd
import pytest

from degp.tabular import TableError, TableWarning, read_table
from degp.tabular.model import predict_rows
from degp.tabular.writing import predict_file
from tests.tabular.cases import houses
from tests.tabular.conftest import TARGETS


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_is_predicted_in_chunks_as_at_once(name, suffix, models, table):
    out = table.with_name(f"p{suffix}")
    rows = predict_file(models[name], table, out, chunk_rows=7, id_column="sold")
    written = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    whole = predict_rows(models[name], read_table(table))
    assert rows == len(written) == len(whole)
    assert written["sold"].tolist() == houses()["sold"].tolist()
    for column in whole:
        if column != "prediction":
            np.testing.assert_allclose(written[column], whole[column], rtol=1e-6, atol=1e-9)


def test_a_bad_cell_in_a_late_chunk_leaves_no_file(models, table):
    frame = houses().astype({"age": object})
    frame.loc[59, "age"] = "old"
    frame.to_csv(table, index=False)
    with pytest.raises(TableError, match="row 59"):
        predict_file(models["numbers"], table, table.with_name("p.csv"), chunk_rows=10)
    assert [path.name for path in table.parent.iterdir()] == ["houses.csv"]


def test_unusual_cells_are_counted_over_the_whole_file(models, table):
    frame = houses().assign(pool=1)
    frame.loc[::4, "city"] = ["Rome", "Bonn", "Rome"] * 5
    frame.loc[5:40, "størrelse"] = np.nan
    frame.to_csv(table, index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predict_file(models["numbers"], table, table.with_name("p.csv"), chunk_rows=7)
    messages = sorted(str(warning.message) for warning in caught if issubclass(warning.category, TableWarning))
    assert messages == [
        "column 'city' has 15 cells in categories that training has not seen, such as 'Rome'; they count as none of "
        "the 3 known ones",
        "column 'størrelse' has 36 missing cells, but had none in training; they are filled in, and predictions for "
        "these rows are less reliable",
        "the table has columns that training did not have: 'pool'; they are ignored",
    ]
