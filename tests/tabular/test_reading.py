"""Files become data frames, whole or in chunks, or a clear error."""

import gzip
import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import degp.tabular
from degp.data import as_batch
from degp.tabular import Preprocessing, TableError, TableWarning, Target, read_table, stream_table
from degp.tabular.reading import numbered
from tests.tabular.cases import houses


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


def test_columns_are_read_in_the_requested_order(file):
    assert list(read_table(file("a,b,c\n1,2,3\n"), ["c", "a"])) == ["c", "a"]


def test_a_column_is_text_in_all_chunks_of_a_file_or_in_none(file, monkeypatch):
    monkeypatch.setattr("degp.tabular.reading.stream_table.__kwdefaults__", {"chunk_rows": 2, "text": ()})
    frame = read_table(file("code,n\n01,1\n02,2\n03,3\nA4,4\n"))
    assert list(frame["code"]) == ["01", "02", "03", "A4"]
    assert list(frame["n"]) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "content",
    ["a;b\n1,5;x\n2,5;y\n", "a,b\n1.5,x\n2.5,y\n", "\ufeffa|b\n1.5|x\n2.5|y\n", "\n\na, b\n1.5, x\n2.5, y\n"],
)
def test_separator_is_found(file, content):
    pd.testing.assert_frame_equal(read_table(file(content)), pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]}))


def test_a_single_new_row_is_encoded_as_in_training(file):
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
def test_category_is_read_again_as_in_training(file, train, new, outputs):
    fitted = Preprocessing.fit(read_table(file(train)), kinds={"c": "categorical"})
    table = read_table(file(new), text=fitted.text_columns)
    np.testing.assert_array_equal(fitted.transform(table), outputs)


def test_booleans_with_missing_cells_are_read_again(file):
    fitted = Preprocessing.fit(read_table(file("ok,x\n1.0,1\n,2\n0.0,5\n")))
    table = read_table(file("ok,x\n1.0,1\n0.0,1\n"), text=fitted.text_columns)
    np.testing.assert_array_equal(fitted.transform(table)[:, :2], [[1, 0], [0, 0]])


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "empty.csv", "the file is empty"),
        ("\n \n", "blank.csv", "has no columns|at least one row"),
        ("a,b\n", "header.csv", "at least one row under its header, but it has none"),
        ("1,2.5\n3,4\n", "numbers.csv", "must name the columns, but it has numbers only: '1', '2.5'; add a header"),
        ("a,b,a\n1,2,3\n", "twice.csv", "different names, but .*twice.csv has 'a' more than once"),
        (b"a,b\n1,\x81\xff\n", "bytes.csv", r"must be text in UTF-8 or Windows-1252, but has the byte 0x81"),
        ("a,b\n1,2\n1,2,3\n", "ragged.csv", "Expected 2 fields in line 3, saw 3; .* separators outside quotes"),
        ("# made by hand\na,b\n1,2\n1,2\n", "title.csv", "lines above the header"),
        ("a,b\n1,2,3\n1,2,3\n", "wide.csv", "as many fields as the header"),
        ("a\n1\n", "table.xls", r"must be a .csv, .tsv \(also .gz\), .xlsx or .parquet file"),
        (b"not gzip", "table.csv.gz", "must be a readable table"),
        (gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:20], "cut.csv.gz", "must be a readable table"),
        (b"PAR1 nothing", "table.parquet", "must be a readable table"),
    ],
)
def test_file_that_is_not_a_table_is_rejected(file, content, name, message):
    with pytest.raises(TableError, match=message):
        read_table(file(content, name))


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(TableError, match=r"must be a table at .*houses.csv, but there is no such file"):
        read_table(tmp_path / "houses.csv")


def test_missing_column_is_reported_with_a_similar_name(file):
    path = file("price,rooms\n1,2\n2,3\n")
    with pytest.raises(TableError, match=r"must have the columns 'prise', .*did you mean 'price' for 'prise'"):
        read_table(path, ["prise"])
    with pytest.raises(TableError, match="did you mean 'price' for 'prise'"):
        Target.fit(read_table(path), "prise")


def test_missing_pyarrow_is_reported(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"needs pyarrow: pip install 'degp\[sklearn\]'"):
        read_table(file(b"PAR1", "table.parquet"))


def test_missing_pandas_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"tables need pandas: pip install 'degp\[sklearn\]'"):
        importlib.reload(degp.tabular)  # fails at its first import, and leaves the module as it is


def resident_mebibytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the memory")
def test_a_long_table_streams_in_the_memory_of_a_chunk(tmp_path):
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write(",".join(f"c{column}" for column in range(50)) + "\n")
        for _ in range(50):
            file.write((",".join(["0.5"] * 50) + "\n") * 5_000)
    chunks = stream_table(path, chunk_rows=5_000)
    rows = len(next(chunks))
    start = most = resident_mebibytes()
    for chunk in chunks:
        rows += len(chunk)
        most = max(most, resident_mebibytes())
    assert rows == 250_000
    assert most - start < 40  # the file has 50 MB, and in float64 the table would have 100


def test_columns_without_a_header_are_named_by_their_places(file):
    frame = read_table(file("1,a\n2,b\n"), names=numbered)
    pd.testing.assert_frame_equal(frame, pd.DataFrame({"1": [1, 2], "2": ["a", "b"]}), check_dtype=False)
    assert list(read_table(file("x,a\n"), ["2"], names=numbered)) == ["2"]


@pytest.fixture
def workbook(tmp_path):
    pytest.importorskip("openpyxl")
    path = tmp_path / "houses.xlsx"
    houses().to_excel(path, index=False)
    return path


def test_a_workbook_is_read_like_the_same_csv_file(workbook, tmp_path):
    houses().to_csv(tmp_path / "houses.csv", index=False)
    expected = read_table(tmp_path / "houses.csv")
    pd.testing.assert_frame_equal(read_table(workbook), expected, check_dtype=False)
    chunks = list(stream_table(workbook, ["price", "city"], chunk_rows=25))
    assert [len(chunk) for chunk in chunks] == [25, 25, 10]
    pd.testing.assert_frame_equal(pd.concat(chunks), expected[["price", "city"]], check_index_type=False)
    assert read_table(workbook, text=["age"])["age"].iloc[1] == str(houses()["age"].iloc[1]).removesuffix(".0")


def test_a_workbook_without_a_header(tmp_path):
    pytest.importorskip("openpyxl")
    pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_excel(tmp_path / "t.xlsx", index=False, header=False)
    assert read_table(tmp_path / "t.xlsx", names=numbered).to_dict("list") == {"1": [1, 2], "2": ["x", "y"]}
    with pytest.raises(TableError, match="numbers only: '1', '5'; add a header line, or fit with --header none"):
        pd.DataFrame([[1, 5], [2, 6]]).to_excel(tmp_path / "t.xlsx", index=False, header=False)
        read_table(tmp_path / "t.xlsx")


def test_only_the_first_sheet_is_read_and_that_is_said(workbook):
    with pd.ExcelWriter(workbook, mode="a") as writer:
        pd.DataFrame({"z": [1]}).to_excel(writer, sheet_name="other", index=False)
    with pytest.warns(TableWarning, match="has 2 sheets, and the first, 'Sheet1', is read"):
        assert "price" in read_table(workbook)


def test_a_workbook_that_is_none_is_rejected(file):
    pytest.importorskip("openpyxl")
    with pytest.raises(TableError, match="must be a readable table"):
        read_table(file("a,b\n1,2\n", "table.xlsx"))


def test_a_workbook_needs_openpyxl(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"table.xlsx needs openpyxl: pip install openpyxl, or save it as .csv"):
        read_table(file("a", "table.xlsx"))
