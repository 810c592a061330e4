"""Preprocessing: any table becomes finite numbers, the same ones again later, or a clear error."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degp.tabular import Preprocessing, TableError, TableWarning
from tests.tabular.cases import frames, good_frames, houses, transform_quietly

# Laws.


@given(frames())
def test_any_frame_becomes_finite_numbers_or_a_clear_error(frame):
    try:
        outputs = Preprocessing.fit(frame).transform(frame)
    except TableError as error:
        assert str(error)
        return
    assert outputs.dtype == np.float32
    assert np.isfinite(outputs).all()


@given(good_frames(), frames(min_rows=1))
def test_any_new_rows_become_finite_numbers_or_a_clear_error(frame, junk):
    preprocessing = Preprocessing.fit(frame)
    names = preprocessing.names
    new = pd.DataFrame({name: junk.iloc[:, i % junk.shape[1]] for i, name in enumerate(names)})
    try:
        outputs = transform_quietly(preprocessing, new)
    except TableError as error:
        assert any(repr(name) in str(error) for name in names)
        return
    assert np.isfinite(outputs).all()


@given(good_frames())
def test_preprocessing_from_json_is_equal_bit_for_bit(frame):
    fitted = Preprocessing.fit(frame, max_categories=2)
    loaded = Preprocessing.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False)))
    assert loaded == fitted
    assert loaded.transform(frame).tobytes() == fitted.transform(frame).tobytes()


@given(good_frames(), st.randoms(use_true_random=False))
def test_order_of_columns_is_irrelevant(frame, random):
    fitted = Preprocessing.fit(frame)
    names = list(frame.columns)
    random.shuffle(names)
    np.testing.assert_array_equal(fitted.transform(frame[names]), fitted.transform(frame))


@given(good_frames(max_rows=8))
def test_rows_are_transformed_independently(frame):
    fitted = Preprocessing.fit(frame)
    together = fitted.transform(frame)
    separately = [fitted.transform(frame.iloc[i : i + 1]) for i in range(len(frame))]
    np.testing.assert_array_equal(np.concatenate(separately), together)


@given(good_frames())
def test_every_output_has_a_name_and_every_column_a_note(frame):
    fitted = Preprocessing.fit(frame)
    assert len(fitted.features) == fitted.transform(frame).shape[1]
    assert len(fitted.notes) == frame.shape[1]


@given(st.lists(st.floats(-1e140, 1e140), min_size=2, max_size=20, unique=True))
def test_numbers_are_standardised(values):
    frame = pd.DataFrame({"x": values})
    try:
        outputs = Preprocessing.fit(frame, kinds={"x": "numeric"}).transform(frame)
    except TableError as error:
        assert "same value" in str(error) or "agree to 12 digits" in str(error)
        return
    np.testing.assert_allclose([outputs.mean(), outputs.std()], [0, 1], atol=1e-4)


# Fitting.


def test_rows_without_a_target_are_ignored():
    frame = pd.DataFrame({"x": [1.0, 2.0, np.nan, 3.0], "kind": ["a", "b", "a", "b"], "y": [1.0, 2.0, 3.0, 4.0]})
    unlabelled = pd.DataFrame({"x": [1e6, -50.0], "kind": ["c", "c"], "y": [np.nan, np.nan]})
    alone = Preprocessing.fit(frame, "y")
    together = Preprocessing.fit(pd.concat([frame, unlabelled], ignore_index=True), "y")
    assert together.to_json() == alone.to_json()
    rows = frame.drop(columns="y")
    np.testing.assert_array_equal(together.transform(rows), alone.transform(rows))


@pytest.mark.parametrize("rows", [0, 1])
def test_fewer_than_two_rows_are_rejected(rows):
    with pytest.raises(TableError, match=f"at least two rows to learn from, but there is {rows}"):
        Preprocessing.fit(houses()[:rows], "price")


def test_table_without_informative_columns_is_rejected():
    with pytest.raises(TableError, match="must be a column to learn from, but none is left: 'a': left out, every row"):
        Preprocessing.fit(pd.DataFrame({"a": [1, 1], "y": [1, 2]}), "y")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[1, 2], [3, 4]]), "column names must be text, but there is 0"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "different names, but 'a' occur more than once"),
        (pd.DataFrame({"z": [1j, 2j]}), "column 'z' must have numbers, text, booleans or dates"),
    ],
)
def test_frame_that_is_not_a_table_is_rejected(frame, message):
    with pytest.raises(TableError, match=message):
        Preprocessing.fit(frame)


# New tables.


def test_missing_columns_are_reported_with_similar_names():
    fitted = Preprocessing.fit(houses(), "price")
    with pytest.raises(TableError, match=r"must have the columns 'age', 'city', .*did you mean 'City' for 'city'"):
        fitted.transform(houses().drop(columns="age").rename(columns={"city": "City"}))


def test_extra_columns_are_ignored_with_a_warning():
    fitted = Preprocessing.fit(houses(), "price")
    with pytest.warns(TableWarning, match="training did not have: 'more'; they are ignored"):
        outputs = fitted.transform(houses().assign(more=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the target is expected
        np.testing.assert_array_equal(fitted.transform(houses()), outputs)


# Records.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "must have schema 1, but this one has 99"),
        ({"columns": [{"kind": "magic", "name": "x"}]}, "kind must be one of .* but it is 'magic'"),
        ({"columns": [{"kind": "numeric", "name": "x"}]}, "as to_json wrote it"),
        ({"columns": None}, "as to_json wrote it"),
    ],
)
def test_record_of_another_form_is_rejected(change, message):
    record = Preprocessing.fit(houses(), "price").to_json()
    with pytest.raises(TableError, match=message):
        Preprocessing.from_json({**record, **change})


def test_dropped_columns_are_ignored_without_a_word():
    fitted = Preprocessing.fit(houses(), "price", drop=["city", "sold"])
    assert not {"city", "sold"} & set(fitted.names)
    assert "'city': left out, as requested" in fitted.notes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.transform(houses())
    with pytest.raises(TableError, match="did you mean 'city' for 'cities'"):
        Preprocessing.fit(houses(), "price", drop=["cities"])


def test_records_without_a_word_about_headers_are_of_tables_that_have_one():
    record = Preprocessing.fit(houses(), "price").to_json()
    assert record.pop("header") is True
    assert Preprocessing.from_json(record).header
    assert not Preprocessing.from_json(record | {"header": False}).header


def test_every_country_of_a_panel_has_a_feature():
    countries = [f"country {i}" for i in range(200)] * 5
    fitted = Preprocessing.fit(pd.DataFrame({"country": countries, "year": np.repeat(range(5), 200)}))
    assert len(fitted.features) == 201 and fitted.groups.count(0) == 200
