"""Cells become numbers, text or days, or an error names the column, row and value."""

import numpy as np
import pandas as pd
import pytest

from degp.tabular import Preprocessing, TableError
from degp.tabular.cells import filled_cells, to_text
from tests.tabular.cases import houses


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("age", "old", "column 'age' must have finite numbers.*row 3 .*has 'old'"),
        ("age", np.inf, "column 'age' must have finite numbers.*row 3 .*has inf"),
        ("garden", "perhaps", "column 'garden' must have true or false.*row 3 .*has 'perhaps'.*kinds="),
        ("sold", "soon", "column 'sold' must have dates like 2024-01-31.*row 3 .*has 'soon'"),
        ("sold", "today", "column 'sold' must have dates"),
        ("city", ["Oslo"], r"column 'city' must have numbers, text.*row 3 .*has \['Oslo'\]"),
        ("størrelse", 1e149, "column 'størrelse' must have values within"),
    ],
)
def test_bad_cell_is_reported_by_column_row_and_value(column, cell, message):
    fitted, new = Preprocessing.fit(houses(), "price"), houses().astype({column: object})
    new.at[3, column] = cell
    with pytest.raises(TableError, match=message):
        fitted.transform(new)


@pytest.mark.parametrize(
    "cells", [[1, 2, None], [1.0, 2.0, np.nan], ["1", "2 ", " "], pd.array([1, 2, None], dtype="Int64")]
)
def test_equal_numbers_are_the_same_text_however_stored(cells):
    series = pd.Series(cells, name="c")
    assert to_text(series).dropna().tolist() == ["1", "2"]
    assert filled_cells(series).tolist() == [True, True, False]
