"""Encodings of columns: booleans, numbers, categories and dates, with missing and unseen cells."""

import numpy as np
import pandas as pd
import pytest

from degp.tabular import Preprocessing, TableError, TableWarning
from degp.tabular.columns import CategoricalColumn


@pytest.mark.parametrize(
    "cells",
    [
        [True, False, True],
        ["True", "False", "true"],
        ["yes", "no", "YES"],
        ["y", "n", "y "],
        ["on", "off", "on"],
        [1, 0, 1],
        [1.0, 0.0, 1.0],
        ["1", "0", "1"],
        pd.array([True, False, True], dtype="boolean"),
    ],
)
def test_booleans_are_zero_and_one_however_written(cells):
    frame = pd.DataFrame({"ok": cells})
    np.testing.assert_array_equal(Preprocessing.fit(frame).transform(frame)[:, 0], [1, 0, 1])


def test_missing_number_becomes_the_median_with_an_indicator():
    frame = pd.DataFrame({"x": [0.0, 2.0, 10.0, np.nan]})
    fitted = Preprocessing.fit(frame)
    assert fitted.features == ("x", "x is missing")
    values, indicator = fitted.transform(frame).T
    assert values[3] == values[1]
    np.testing.assert_array_equal(indicator, [0, 0, 0, 1])


def test_missing_cells_are_counted_in_the_notes():
    frame = pd.DataFrame(
        {
            "number": [0.0, 2.0, 10.0, np.nan],
            "truth": ["yes", None, " ", "no"],
            "word": ["a", "b", "a", None],
            "day": ["2020-01-01", None, "2022-05-01", "2021-02-03"],
            "whole": [1, 2, 3, 5],
        }
    )
    notes = Preprocessing.fit(frame).notes
    assert notes[0].startswith("'number': number, standardised from 4 ± ")
    assert notes[0].endswith("; 1 of 4 missing, filled with the median 2")
    assert notes[1] == "'truth': 0 or 1, 50% ones; 2 of 4 missing, filled with this share"
    assert notes[2] == "'word': 2 categories, one-hot encoded; 1 of 4 missing, encoded as a category"
    assert notes[3].endswith("; 1 of 4 missing, filled with the median")
    assert "missing" not in notes[4]


def test_missing_cell_where_training_had_none_is_counted():
    fitted = Preprocessing.fit(pd.DataFrame({"x": [0.0, 2.0, 7.0]}))
    with pytest.warns(TableWarning, match="'x' has 2 missing cells, but had none in training"):
        outputs = fitted.transform(pd.DataFrame({"x": [np.nan, None, 1.0]}))
    assert np.isfinite(outputs).all()


def test_categories_are_ordered_by_frequency():
    frame = pd.DataFrame({"c": ["b", "a", "c", "c", "b", "d", None, "c"]})
    fitted = Preprocessing.fit(frame, max_categories=2)
    assert fitted.features == ("c = c", "c = b", "c is another", "c is missing")
    assert "the 2 most frequent categories, one-hot encoded, and one for all others" in fitted.notes[0]
    hot = np.eye(4)[[1, 2, 0, 0, 1, 2, 3, 0]]
    np.testing.assert_array_equal(fitted.transform(frame), hot)


def test_unseen_category_is_other_or_counted():
    frame = pd.DataFrame({"c": ["a", "b", "a", "b", "z"]})
    np.testing.assert_array_equal(
        Preprocessing.fit(frame, max_categories=2).transform(pd.DataFrame({"c": ["new"]})), [[0, 0, 1]]
    )
    with pytest.warns(TableWarning, match="'c' has 2 cells in categories that training has not seen, such as 'new'"):
        outputs = Preprocessing.fit(frame).transform(pd.DataFrame({"c": ["new", "a", "newer"]}))
    np.testing.assert_array_equal(outputs, [[0, 0, 0], [1, 0, 0], [0, 0, 0]])


def test_category_is_the_same_written_as_text_or_as_number():
    column = CategoricalColumn.fit(pd.Series(["1", "2", "A", "1"], name="c"))
    np.testing.assert_array_equal(column.encode(pd.Series([1.0, 2.0], name="c")), [[1, 0, 0], [0, 1, 0]])


NAMED = ("%d-%b-%Y", "%B %d, %Y", "%m/%d/%Y %I:%M %p")


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%d.%m.%Y", "%d/%m/%Y %H:%M", "%m/%d/%Y", *NAMED, None]
)
def test_dates_are_days_and_cycles(form):
    dates = pd.Series(pd.date_range("2021-01-01", periods=500))
    frame = pd.DataFrame({"when": dates if form is None else dates.dt.strftime(form)})
    fitted = Preprocessing.fit(frame)
    outputs = fitted.transform(frame)
    assert fitted.features[0] == "when" and len(fitted.features) == 5
    np.testing.assert_allclose(np.diff(outputs[:, 0]), np.diff(outputs[:, 0]).mean(), atol=1e-5)
    np.testing.assert_allclose(outputs[7:, 3:], outputs[:-7, 3:], atol=1e-5)  # the period of a week
    np.testing.assert_allclose(outputs[365:, 1:3], outputs[:-365, 1:3], atol=0.01)  # and of a year


def test_missing_date_has_an_indicator():
    frame = pd.DataFrame({"when": ["2020-01-01", None, "2022-05-01", "2021-02-03"]})
    fitted = Preprocessing.fit(frame)
    assert fitted.features[-1] == "when is missing"
    np.testing.assert_array_equal(fitted.transform(frame)[:, -1], [0, 1, 0, 0])


def test_scale_that_would_give_nan_is_rejected():
    record = Preprocessing.fit(pd.DataFrame({"x": [1.0, 2.0, 4.0]})).to_json()
    record["columns"][0]["scale"]["std"] = 0.0
    with pytest.raises(TableError, match="std positive"):
        Preprocessing.from_json(record)
