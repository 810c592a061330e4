"""Tables: whatever is in them becomes finite numbers, the same ones again later, or a clear error."""

import gzip
import json
import os
import subprocess
import sys
import warnings
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degp.data import as_batch
from degp.tables import (
    Preprocessing,
    TableError,
    TableWarning,
    Target,
    infer_task,
    read_table,
    stream_table,
)
from degp.tables.columns import Categorical

CELLS = {
    "floats": st.none() | st.floats(),
    "modest floats": st.none() | st.floats(-1e6, 1e6),
    "integers": st.integers(),
    "booleans": st.none() | st.booleans(),
    "words": st.none() | st.sampled_from(["a", "b", "c", " a ", ""]),
    "text": st.none() | st.text(max_size=5),
    "yes and no": st.sampled_from(["yes", "no", "Yes", None]),
    "dates": st.none() | st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "moments": st.none() | st.datetimes(),
    "date texts": st.none() | st.dates().map(str),
    "anything": st.none() | st.text(max_size=3) | st.integers() | st.floats() | st.booleans() | st.dates(),
    "odd": st.lists(st.integers(), max_size=1) | st.binary(max_size=2),
}
NAMES = st.text(min_size=1, max_size=6)


@st.composite
def frames(draw, kinds=tuple(CELLS), min_rows=0, max_rows=30):
    """A data frame of columns of any kind, under any names."""
    rows = draw(st.integers(min_rows, max_rows))
    columns = draw(st.dictionaries(NAMES, st.sampled_from(kinds), min_size=1, max_size=4))
    return pd.DataFrame(
        {name: draw(st.lists(CELLS[kind], min_size=rows, max_size=rows)) for name, kind in columns.items()}
    )


@st.composite
def good_frames(draw):
    """A frame that can be learned from: one column of numbers is sure to vary."""
    frame = draw(frames(("modest floats", "booleans", "words", "yes and no", "dates"), min_rows=3))
    return frame.assign(sure=np.arange(len(frame)) % 3 * 1.5)


@pytest.fixture
def file(tmp_path):
    """Writes text or bytes to a file of that name and gives its path."""

    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def houses(rows=60):
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "størrelse": generator.normal(100, 20, rows),
            "age": np.where(np.arange(rows) % 7, generator.integers(0, 90, rows), np.nan),
            "garden": generator.choice(["yes", "no"], rows),
            "city": generator.choice(["Oslo", "Bergen", "Tromsø"], rows),
            "sold": pd.date_range("2022-01-01", periods=rows, freq="11D").strftime("%Y-%m-%d"),
            "price": generator.normal(3, 1, rows),
        }
    )


def quietly(preprocessing, frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        return preprocessing.transform(frame)


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
        outputs = quietly(preprocessing, new)
    except TableError as error:
        assert any(repr(name) in str(error) for name in names)
        return
    assert np.isfinite(outputs).all()


@given(
    st.binary(max_size=80) | st.text(max_size=80).map(str.encode),
    st.sampled_from([".csv", ".tsv", ".parquet", ".csv.gz"]),
)
def test_any_bytes_become_a_frame_or_a_clear_error(tmp_path_factory, content, suffix):
    path = tmp_path_factory.mktemp("junk") / f"table{suffix}"
    path.write_bytes(content)
    try:
        frame = read_table(path)
    except TableError as error:
        assert path.name in str(error)
        return
    assert len(frame) and not frame.columns.duplicated().any()


@given(good_frames())
def test_preprocessing_from_json_gives_the_same_bits(frame):
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


@given(good_frames())
def test_rows_are_transformed_one_by_one(frame):
    fitted = Preprocessing.fit(frame)
    together = fitted.transform(frame)
    apart = [fitted.transform(frame.iloc[i : i + 1]) for i in range(len(frame))]
    np.testing.assert_array_equal(np.concatenate(apart), together)


@given(good_frames())
def test_every_output_has_a_name_of_its_own_column(frame):
    fitted = Preprocessing.fit(frame)
    assert len(fitted.features) == fitted.transform(frame).shape[1]
    assert len(fitted.notes) == frame.shape[1]


@given(st.lists(st.floats(-1e140, 1e140), min_size=2, max_size=20, unique=True))
def test_numbers_are_standardised(values):
    try:
        outputs = Preprocessing.fit(pd.DataFrame({"x": values}), kinds={"x": "numeric"}).transform(
            pd.DataFrame({"x": values})
        )
    except TableError as error:
        assert "same value" in str(error)
        return
    np.testing.assert_allclose([outputs.mean(), outputs.std()], [0, 1], atol=1e-4)


@given(st.lists(st.none() | st.text() | st.integers() | st.floats() | st.booleans(), max_size=40))
def test_any_target_has_a_task_or_a_clear_error(cells):
    frame = pd.DataFrame({"y": pd.Series(cells, dtype=object)})
    try:
        target = Target.fit(frame, "y")
    except TableError as error:
        assert "'y'" in str(error)
        return
    rows, targets = target.split(frame)
    assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target
    assert np.isfinite(targets).all() and len(rows) == len(targets)
    if target.task == "classification":
        assert set(targets) == set(range(len(target.labels)))


# From file to batch.


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_file_becomes_a_batch(tmp_path, suffix):
    frame, path = houses(), tmp_path / f"houses{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    table = read_table(path)
    target = Target.fit(table, "price")
    rows, targets = target.split(table)
    preprocessing = Preprocessing.fit(rows, "price")
    batch = as_batch(preprocessing.transform(rows), targets)
    assert batch.inputs.shape == (60, len(preprocessing.features)) and batch.targets.shape == (60, 1)
    chunks = stream_table(path, preprocessing.names, chunk_rows=7, text=preprocessing.text_columns)
    np.testing.assert_array_equal(np.concatenate([preprocessing.transform(c) for c in chunks]), batch.inputs)


def test_chunks_are_the_table_in_order(file):
    path = file("a,b\n" + "".join(f"{i},x{i}\n" for i in range(10)))
    chunks = list(stream_table(path, chunk_rows=4))
    assert [len(chunk) for chunk in chunks] == [4, 4, 2]
    pd.testing.assert_frame_equal(pd.concat(chunks), read_table(path), check_index_type=False)


def test_columns_are_read_in_the_order_asked_for(file):
    assert list(read_table(file("a,b,c\n1,2,3\n"), ["c", "a"])) == ["c", "a"]


def test_text_is_text_throughout_a_long_file(file, monkeypatch):
    monkeypatch.setattr("degp.tables.reading.stream_table.__kwdefaults__", {"chunk_rows": 2, "text": ()})
    frame = read_table(file("code,n\n01,1\n02,2\n03,3\nA4,4\n"))
    assert list(frame["code"]) == ["01", "02", "03", "A4"]
    assert list(frame["n"]) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "content",
    ["a;b\n1,5;x\n2,5;y\n", "a,b\n1.5,x\n2.5,y\n", "\ufeffa|b\n1.5|x\n2.5|y\n", "\n\na, b\n1.5, x\n2.5, y\n"],
)
def test_separator_is_found(file, content):
    pd.testing.assert_frame_equal(read_table(file(content)), pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]}))


def test_one_new_row_is_enough_to_predict(file):
    fitted = Preprocessing.fit(houses(), "price")
    row = houses()[4:5].drop(columns="price")
    path = file(row.to_csv(index=False))
    again = fitted.transform(read_table(path, text=fitted.text_columns))
    np.testing.assert_array_equal(again, fitted.transform(houses())[4:5])


@pytest.mark.parametrize(
    ("train", "new", "outputs"),
    [
        ("c\n01\n1\nA\n01\n", "c\n1\n1\n", [[0, 1, 0], [0, 1, 0]]),  # text: 01 is not 1
        ("c,k\n7.0,0\n,0\n5.0,0\n7.0,0\n", "c\n5\n7\n", [[0, 1, 0], [1, 0, 0]]),  # numbers: 5 is 5.0
    ],
)
def test_category_is_read_again_as_it_was_in_training(file, train, new, outputs):
    fitted = Preprocessing.fit(read_table(file(train)), kinds={"c": "categorical"})
    table = read_table(file(new), text=fitted.text_columns)
    np.testing.assert_array_equal(fitted.transform(table), outputs)


def test_booleans_with_gaps_are_read_again(file):
    fitted = Preprocessing.fit(read_table(file("ok,x\n1.0,1\n,2\n0.0,5\n")))
    table = read_table(file("ok,x\n1.0,1\n0.0,1\n"), text=fitted.text_columns)
    np.testing.assert_array_equal(fitted.transform(table)[:, :2], [[1, 0], [0, 0]])


def test_text_labels_are_read_again_as_text(file):
    target = Target.fit(read_table(file("y\n01\nA\n01\n")), "y")
    assert target.text_columns == ("y",)
    assert list(target.split(read_table(file("y\n01\n"), text=target.text_columns))[1]) == [0]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "empty.csv", "the file is empty"),
        ("\n \n", "blank.csv", "has no columns|at least one row"),
        ("a,b\n", "header.csv", "at least one row under its header, but it has none"),
        ("1,2.5\n3,4\n", "numbers.csv", "must name the columns, but it has numbers only: '1', '2.5'; add a header"),
        ("a,b,a\n1,2,3\n", "twice.csv", "different names, but .*twice.csv has 'a' more than once"),
        (b"a,b\n1,caf\xe9\n", "latin.csv", r"must be UTF-8 text, but has the byte 0xe9 .*iconv -f latin1"),
        ("a,b\n1,2\n1,2,3\n", "ragged.csv", "Expected 2 fields in line 3, saw 3"),
        ("a,b\n1,2,3\n1,2,3\n", "wide.csv", "as many fields as the header"),
        ("a\n1\n", "table.xlsx", r"must be a .csv, .tsv \(also .gz\) or .parquet file"),
        (b"not gzip", "table.csv.gz", "must be a readable table"),
        (gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:20], "cut.csv.gz", "must be a readable table"),
        (b"PAR1 nothing", "table.parquet", "must be a readable table"),
    ],
)
def test_file_that_is_no_table_is_told(file, content, name, message):
    with pytest.raises(TableError, match=message):
        read_table(file(content, name))


def test_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(TableError, match=r"must be a table at .*houses.csv, but there is no such file"):
        read_table(tmp_path / "houses.csv")


def test_column_that_is_not_there_is_told_with_the_nearest(file):
    path = file("price,rooms\n1,2\n2,3\n")
    with pytest.raises(TableError, match=r"must have the columns 'prise', .*did you mean 'price' for 'prise'"):
        read_table(path, ["prise"])
    with pytest.raises(TableError, match="did you mean 'price' for 'prise'"):
        Target.fit(read_table(path), "prise")


@pytest.mark.parametrize("module", ["pandas", "pyarrow.parquet"])
def test_missing_dependency_is_told(tmp_path, module):
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        f"from degp.tables import read_table\nread_table({str(tmp_path / 'table.parquet')!r})"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ImportError" in result.stderr and "pip install 'degp[sklearn]'" in result.stderr


# Targets.


@pytest.mark.parametrize(
    ("cells", "task", "reason"),
    [
        ([0.5, 1.5, 2.0] * 20, "regression", "numbers with decimals"),
        ([1.0, 2.0, 3.0] * 20, "regression", "numbers with decimals"),
        (["a", "b", "a"], "classification", "2 different labels"),
        ([True, False, True], "classification", "2 different labels"),
        (pd.Categorical([1, 2, 3, 1]), "classification", "3 different labels"),
        ([0, 1, 1], "classification", "only 2 different ones in 3 rows"),
        ([0, 1, 2] * 20, "classification", "only 3 different ones in 60 rows"),
        ([0.0, 1.0, np.nan] * 20, "classification", "only 2 different ones in 40 rows"),
        ([0, 1, 2] * 2, "regression", "3 different ones in 6 rows"),
        (list(range(21)) * 50, "regression", "21 different ones"),
        (["1.5", "2", "3"], "regression", "numbers with decimals"),
    ],
)
def test_task_follows_from_the_cells(cells, task, reason):
    found = infer_task(pd.Series(cells, name="y"))
    assert found.name == task
    assert reason in found.reason


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([np.nan, None, np.nan], "'y' must have values, but all 3 of its cells are missing"),
        (["", " ", None], "'y' must have values, but all 3"),
        ([2.0, np.nan], "at least two rows with the target 'y', but there is one"),
        ([3, 3, 3], "'y' must vary, but every row has '3'"),
        (["a", "a ", None], "'y' must vary, but every row has 'a'"),
        ([1.0, np.inf, 2.0], "row 1 .* has inf"),
        ([f"{i}.5" for i in range(30)] + ["?"], r"row 30 .* has '\?'"),
        ([f"house {i}" for i in range(30)], "30 different texts in 30 rows, such as 'house 0'"),
        (pd.date_range("2020-01-01", periods=3), "'y' must have finite numbers"),
    ],
)
def test_target_that_cannot_be_learned_is_told(cells, message):
    with pytest.raises(TableError, match=message):
        Target.fit(pd.DataFrame({"y": cells}), "y")


def test_rows_without_target_stay_out_and_are_counted():
    frame = pd.DataFrame({"x": range(5), "y": ["b", None, "a", "", "b"]})
    target = Target.fit(frame, "y")
    rows, targets = target.split(frame)
    assert list(rows["x"]) == [0, 2, 4] and list(targets) == [1, 0, 1]
    assert target.labels == ("a", "b")
    assert "2 of 5 rows have no 'y' and are left out" in target.notes


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        ([True, False, None], (False, True)),
        ([3, -1, 3], (-1, 3)),
        ([10.0, 9.0, None], (9, 10)),
        (["02", "1", "1"], ("02", "1")),
    ],
)
def test_labels_are_kept_as_they_are(cells, labels):
    target = Target.fit(pd.DataFrame({"y": cells}), "y", "classification")
    assert target.labels == labels
    assert [type(label) for label in target.labels] == [type(label) for label in labels]


def test_label_that_training_has_not_seen_is_told():
    target = Target.fit(pd.DataFrame({"y": ["a", "b"]}), "y")
    with pytest.raises(TableError, match=r"column 'y' must have one of the 2 labels of training, but row 1 .* has 'c'"):
        target.split(pd.DataFrame({"y": ["a", "c"]}))


# Columns.


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


def test_missing_number_becomes_the_median_with_a_mark():
    frame = pd.DataFrame({"x": [0.0, 2.0, 10.0, np.nan]})
    fitted = Preprocessing.fit(frame)
    assert fitted.features == ("x", "x is missing")
    values, marks = fitted.transform(frame).T
    assert values[3] == values[1]
    np.testing.assert_array_equal(marks, [0, 0, 0, 1])


def test_missing_cell_where_training_had_none_is_counted():
    fitted = Preprocessing.fit(pd.DataFrame({"x": [0.0, 2.0, 7.0]}))
    with pytest.warns(TableWarning, match="'x' has 2 missing cells, but had none in training"):
        outputs = fitted.transform(pd.DataFrame({"x": [np.nan, None, 1.0]}))
    assert np.isfinite(outputs).all()


def test_categories_come_most_frequent_first():
    frame = pd.DataFrame({"c": ["b", "a", "c", "c", "b", "d", None, "c"]})
    fitted = Preprocessing.fit(frame, max_categories=2)
    assert fitted.features == ("c = c", "c = b", "c is another", "c is missing")
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
    column = Categorical.fit(pd.Series(["1", "2", "A", "1"], name="c"))
    np.testing.assert_array_equal(column.encode(pd.Series([1.0, 2.0], name="c")), [[1, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%d.%m.%Y", "%d/%m/%Y %H:%M", "%m/%d/%Y", None])
def test_dates_are_days_and_cycles(form):
    dates = pd.Series(pd.date_range("2021-01-01", periods=500))
    frame = pd.DataFrame({"when": dates if form is None else dates.dt.strftime(form)})
    fitted = Preprocessing.fit(frame)
    outputs = fitted.transform(frame)
    assert fitted.features[0] == "when" and len(fitted.features) == 5
    np.testing.assert_allclose(np.diff(outputs[:, 0]), np.diff(outputs[:, 0]).mean(), atol=1e-5)
    np.testing.assert_allclose(outputs[7:, 3:], outputs[:-7, 3:], atol=1e-5)  # the week comes round
    np.testing.assert_allclose(outputs[365:, 1:3], outputs[:-365, 1:3], atol=0.01)  # and the year


def test_missing_date_is_marked():
    frame = pd.DataFrame({"when": ["2020-01-01", None, "2022-05-01", "2021-02-03"]})
    fitted = Preprocessing.fit(frame)
    assert fitted.features[-1] == "when is missing"
    np.testing.assert_array_equal(fitted.transform(frame)[:, -1], [0, 1, 0, 0])


def test_columns_that_say_nothing_are_left_out_with_a_note():
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
    assert "names the rows: 20 different texts" in left_out["name"]
    assert "same value" in left_out["planet"] and "same value" in left_out["noise"]
    assert "missing" in left_out["gone"]


def test_kinds_overrule_the_cells():
    frame = pd.DataFrame({"zip": [1011, 1011, 2022, 3033], "children": [0, 1, 0, 1]})
    fitted = Preprocessing.fit(frame, kinds={"zip": "categorical", "children": "numeric"})
    assert fitted.features == ("zip = 1011", "zip = 2022", "zip = 3033", "children")
    assert np.isfinite(fitted.transform(frame.assign(children=2))).all()


# New tables.


def test_missing_columns_are_told():
    fitted = Preprocessing.fit(houses(), "price")
    with pytest.raises(TableError, match=r"must have the columns 'age', 'city', .*did you mean 'City' for 'city'"):
        fitted.transform(houses().drop(columns="age").rename(columns={"city": "City"}))


def test_extra_columns_are_ignored_with_a_warning():
    fitted = Preprocessing.fit(houses(), "price")
    with pytest.warns(TableWarning, match="training did not have: 'more'; they are ignored"):
        outputs = fitted.transform(houses().assign(more=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the target is no surprise
        np.testing.assert_array_equal(fitted.transform(houses()), outputs)


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("age", "old", "column 'age' must have finite numbers.*row 3 .*has 'old'"),
        ("age", np.inf, "column 'age' must have finite numbers.*row 3 .*has inf"),
        ("garden", "perhaps", "column 'garden' must have true or false.*row 3 .*has 'perhaps'.*kinds="),
        ("sold", "soon", "column 'sold' must have dates like 2024-01-31.*row 3 .*has 'soon'"),
        ("sold", "today", "column 'sold' must have dates"),
        ("city", ["Oslo"], r"column 'city' must have numbers, text.*row 3 .*has \['Oslo'\]"),
        ("størrelse", 1e149, None),
    ],
)
def test_cell_that_cannot_be_is_told_by_column_row_and_value(column, cell, message):
    fitted, new = Preprocessing.fit(houses(), "price"), houses().astype({column: object})
    new.at[3, column] = cell
    with pytest.raises(TableError, match=message or "column 'størrelse' must have values within"):
        fitted.transform(new)


def test_numbers_with_a_little_junk_are_told_when_fitting():
    frame = pd.DataFrame({"x": [str(i) for i in range(99)] + ["n.a."]})
    with pytest.raises(TableError, match=r"column 'x' must have finite numbers.*row 99 .*has 'n.a.'"):
        Preprocessing.fit(frame)


@pytest.mark.parametrize("rows", [0, 1])
def test_nothing_is_learned_from_less_than_two_rows(rows):
    with pytest.raises(TableError, match=f"at least two rows to learn from, but there is {rows}"):
        Preprocessing.fit(houses()[:rows], "price")


def test_no_column_left_is_told():
    with pytest.raises(TableError, match="must be a column to learn from, but none is left: 'a': left out, every row"):
        Preprocessing.fit(pd.DataFrame({"a": [1, 1], "y": [1, 2]}), "y")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[1, 2], [3, 4]]), "column names must be text, but there is 0"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "different names, but 'a' come more than once"),
        (pd.DataFrame({"z": [1j, 2j]}), "column 'z' must have numbers, text, booleans or dates"),
    ],
)
def test_frame_that_is_no_table_is_told(frame, message):
    with pytest.raises(TableError, match=message):
        Preprocessing.fit(frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "must have schema 1, but this one has 99"),
        ({"columns": [{"kind": "magic", "name": "x"}]}, "kind must be one of .* but it is 'magic'"),
        ({"columns": [{"kind": "numeric", "name": "x"}]}, "as to_json wrote it"),
        ({"columns": None}, "as to_json wrote it"),
    ],
)
def test_record_from_elsewhere_is_told(change, message):
    record = Preprocessing.fit(houses(), "price").to_json()
    with pytest.raises(TableError, match=message):
        Preprocessing.from_json({**record, **change})


def test_scale_that_would_give_nan_is_refused():
    record = Preprocessing.fit(pd.DataFrame({"x": [1.0, 2.0, 4.0]})).to_json()
    record["columns"][0]["scale"]["std"] = 0.0
    with pytest.raises(TableError, match="std positive"):
        Preprocessing.from_json(record)


def resident_mebibytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the memory")
def test_a_million_rows_of_fifty_columns_stream_in_the_memory_of_a_chunk(tmp_path):
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write(",".join(f"c{column}" for column in range(50)) + "\n")
        for _ in range(100):
            file.write((",".join(["0.5"] * 50) + "\n") * 10_000)
    rows = 0
    chunks = stream_table(path, chunk_rows=10_000)
    rows += len(next(chunks))
    start = most = resident_mebibytes()
    for chunk in chunks:
        rows += len(chunk)
        most = max(most, resident_mebibytes())
    assert rows == 1_000_000
    assert most - start < 64  # the file has 200 MB, and in float64 the table would have 400
