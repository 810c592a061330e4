"""Numbers are read as people write them, and as they were in training."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from degp.tabular import Preprocessing, TableWarning, Target, infer_task, read_table, stream_table
from degp.tabular.numerals import Numerals, numerals_of


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,234", "999"], [1234, 999]),
        (["$1,234.50", "-$5"], [1234.5, -5]),
        (["1.234,50 €", "0,5"], [1234.5, 0.5]),
        (["1 234,5", "7"], [1234.5, 7]),
        (["1'234.5", "7"], [1234.5, 7]),
        (["45%", "3.5 %"], [45, 3.5]),
        (["(1,234)", "6"], [-1234, 6]),
        (["0,123", "1,5"], [0.123, 1.5]),
        (["1.234", "2"], [1.234, 2]),
        (["1e3", "-inf"], [1000, -np.inf]),
        (["5", "?", "n.a."], [5, np.nan, np.nan]),
        (["5", "n/a", "NaN", "<NA>"], [5, np.nan, np.nan, np.nan]),
    ],
)
def test_numbers_are_read_as_people_write_them(cells, numbers):
    form = numerals_of(cells)
    np.testing.assert_array_equal(form.parse(pd.Series(cells, dtype=object)), numbers)


@pytest.mark.parametrize("cell", ["1,2,3", "12,34,567", "5 km", "2024-01-31", "1.2.3", "$", "+", "-", "?", "10-20", ""])
def test_other_text_is_no_number(cell):
    assert numerals_of([cell]) is None


def test_a_column_with_separators_and_words_for_missing_cells_is_numeric():
    words = [f"{1000 * i:,}" if i % 4 else "unknown" for i in range(1, 41)]
    frame = pd.DataFrame({"people": words, "share": [f"{i}%" for i in range(40)]})
    fitted = Preprocessing.fit(frame)
    assert fitted.features == ("people", "people is missing", "share")
    assert "'people': number as in 1,234.5, standardised" in fitted.notes[0]
    assert "10 of 40 missing" in fitted.notes[0]
    encoded = fitted.transform(frame)
    assert encoded[3, 1] == 1 and encoded[0, 1] == 0
    assert Preprocessing.from_json(fitted.to_json()) == fitted


def test_new_rows_are_read_as_the_training_rows_were(file):
    train = file("size;price\n1.234,5;1\n2.000;2\n12,25;3\n")
    fitted = Preprocessing.fit(read_table(train))
    assert fitted.columns[0].numerals is Numerals.COMMA
    new = read_table(file("size;price\n2.000;2\n", "new.csv"), text=fitted.text_columns)
    np.testing.assert_array_equal(fitted.transform(new)[0], fitted.transform(read_table(train))[1])


def test_targets_may_have_separators_and_words_for_missing_cells():
    series = pd.Series([f"${1000 * i:,}.50" if i % 4 else "-" for i in range(1, 41)], name="price")
    assert infer_task(series).name == "regression"
    rows, values = Target.fit(series.to_frame(), "price").split(series.to_frame())
    assert len(rows) == 30 and values[0] == 1000.5


def test_a_placeholder_among_dates_is_a_missing_date():
    days = pd.date_range("2024-01-01", periods=30).strftime("%d.%m.%Y").tolist()
    fitted = Preprocessing.fit(pd.DataFrame({"sold": [*days[:-1], "n/a"]}))
    plain = Preprocessing.fit(pd.DataFrame({"sold": [*days[:-1], None]}))
    assert fitted.features == plain.features
    rows = pd.DataFrame({"sold": [days[3], "-"]})
    np.testing.assert_array_equal(fitted.transform(rows)[0], plain.transform(rows)[0])


def test_a_placeholder_among_words_is_a_category():
    fitted = Preprocessing.fit(pd.DataFrame({"c": ["yes", "?", "perhaps", "?"] * 5}))
    assert fitted.features == ("c = ?", "c = perhaps", "c = yes")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8", "utf-8-sig"])
def test_encodings_of_spreadsheets_are_found(file, encoding):
    path = file("größe;ort\n1,5;Köln\n2,5;€\n".encode(encoding))
    with pytest.warns(TableWarning, match="Windows-1252") if encoding == "cp1252" else nullcontext():
        (frame,) = stream_table(path)
    assert frame["größe"].tolist() == [1.5, 2.5] and frame["ort"].tolist() == ["Köln", "€"]
