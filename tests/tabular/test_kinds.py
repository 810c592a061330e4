"""The kind of a column follows from its cells, and columns without information are left out with a reason."""

import numpy as np
import pandas as pd
import pytest

from degp.tabular import Preprocessing, TableError


def test_columns_without_information_are_left_out_with_a_reason():
    frame = pd.DataFrame(
        {
            "id": range(100, 120),
            "Unnamed: 0": range(20),
            "name": [f"person {i}" for i in range(20)],
            "planet": "Earth",
            "gone": np.nan,
            "noise": 0.3 + 1e-17 * np.arange(20),
            "x": np.arange(20) ** 2,
            "some": [1.0] * 10 + [np.nan] * 10,
        }
    )
    fitted = Preprocessing.fit(frame)
    assert fitted.names == ("x", "some")
    left_out = {note.split(":")[0].strip("'"): note for note in fitted.notes if "left out" in note}
    assert "numbers the rows" in left_out["id"]
    assert "an identifier: 20 different texts in 20 rows" in left_out["name"]
    assert "same value" in left_out["planet"] and "same value" in left_out["noise"]
    assert "missing" in left_out["gone"]


@pytest.mark.parametrize(
    "cells",
    [
        [2**62 + i for i in range(20)],
        [str(2**62 + i) for i in range(20)],
        [2**63 + i for i in range(20)],
        [2**70 + i for i in range(20)],
        [-(10**15) - i for i in range(20)],
        pd.array([None, *(2**62 + i for i in range(19))], dtype="Int64"),
    ],
    ids=["64 bits", "text", "unsigned", "more than 64 bits", "negative", "with a missing cell"],
)
def test_whole_numbers_that_differ_in_their_last_digits_only_are_an_identifier(cells):
    fitted = Preprocessing.fit(pd.DataFrame({"key": cells, "x": np.arange(20) ** 2}))
    assert fitted.names == ("x",)
    assert "'key': left out, an identifier: its " in fitted.notes[0]
    assert "different whole numbers agree to 12 digits" in fitted.notes[0]


def test_kinds_overrule_the_cells():
    frame = pd.DataFrame({"zip": [1011, 1011, 2022, 3033], "children": [0, 1, 0, 1]})
    fitted = Preprocessing.fit(frame, kinds={"zip": "categorical", "children": "numeric"})
    assert fitted.features == ("zip = 1011", "zip = 2022", "zip = 3033", "children")
    assert np.isfinite(fitted.transform(frame.assign(children=2))).all()


def test_text_among_many_numbers_is_reported():
    frame = pd.DataFrame({"x": [str(i) for i in range(99)] + ["tall"]})
    with pytest.raises(TableError, match=r"column 'x' must have finite numbers.*row 99 .*has 'tall'"):
        Preprocessing.fit(frame)
