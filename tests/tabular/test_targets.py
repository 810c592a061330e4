"""Targets: the task follows from the values, labels survive a round trip, and bad targets are reported."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degp.tabular import TableError, Target, infer_task, read_table


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


def test_ratings_become_classes_with_a_hint():
    hint = "pass --task regression"
    ratings = pd.DataFrame({"y": list(range(1, 11)) * 10})
    assert hint in Target.fit(ratings, "y").notes[0]
    assert not any(hint in note for note in Target.fit(ratings, "y", "classification").notes)
    for cells in ([0, 1] * 20, ["a", "b", "c"] * 20, [0.5, 1.5, 2.5] * 20):
        assert not any(hint in note for note in Target.fit(pd.DataFrame({"y": cells}), "y").notes)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([np.nan, None, np.nan], "'y' must have values, but all 3 of its cells are missing"),
        (["", " ", None], "'y' must have values, but all 3"),
        ([2.0, np.nan], "at least two rows with the target 'y', but there is one"),
        ([3, 3, 3], "'y' must vary, but every row has '3'"),
        (["a", "a ", None], "'y' must vary, but every row has 'a'"),
        ([1.0, np.inf, 2.0], "row 1 .* has inf"),
        ([f"{i}.5" for i in range(30)] + ["tall"], "row 30 .* has 'tall'"),
        ([f"house {i}" for i in range(30)], "30 different texts in 30 rows, such as 'house 0'"),
        (pd.date_range("2020-01-01", periods=3), "'y' must have finite numbers"),
    ],
)
def test_target_that_cannot_be_learned_is_rejected(cells, message):
    with pytest.raises(TableError, match=message):
        Target.fit(pd.DataFrame({"y": cells}), "y")


def test_rows_without_a_target_are_left_out_and_counted():
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
def test_labels_have_the_type_of_the_cells(cells, labels):
    target = Target.fit(pd.DataFrame({"y": cells}), "y", "classification")
    assert target.labels == labels
    assert [type(label) for label in target.labels] == [type(label) for label in labels]


def test_text_labels_are_read_again_as_text(file):
    target = Target.fit(read_table(file("y\n01\nA\n01\n")), "y")
    assert target.text_columns == ("y",)
    assert list(target.split(read_table(file("y\n01\n"), text=target.text_columns))[1]) == [0]


def test_unseen_label_is_rejected():
    target = Target.fit(pd.DataFrame({"y": ["a", "b"]}), "y")
    message = r"column 'y' must have one of the 2 labels of training, but row 1 .* has 'c'; correct it"
    with pytest.raises(TableError, match=message):
        target.split(pd.DataFrame({"y": ["a", "c"]}))


@pytest.mark.parametrize(
    ("known", "new", "hint"),
    [
        ([">50K", "<=50K"], ">50K.", "'>50K.' and '>50K' differ by a trailing dot"),
        ([">50K.", "<=50K."], ">50K", "'>50K' and '>50K.' differ by a trailing dot"),
        ([1, 2], "1 .", "'1 .' and 1 differ by a trailing dot or blank only"),
    ],
)
def test_unseen_label_with_a_trailing_dot_gets_a_hint(known, new, hint):
    target = Target.fit(pd.DataFrame({"y": known}), "y", "classification")
    with pytest.raises(TableError, match=hint):
        target.split(pd.DataFrame({"y": ["other", new]}))


def test_several_targets_are_columns_of_numbers():
    frame = pd.DataFrame({"a": [1.5, 2.5, None, 4.5], "b": [0.5, None, 1.5, 2.5], "x": range(4)})
    target = Target.fit(frame, ["b", "a"])
    rows, targets = target.split(frame)
    assert list(rows["x"]) == [0, 3] and targets.tolist() == [[0.5, 1.5], [2.5, 4.5]]
    assert target.name == "b, a"
    assert "2 of 4 rows have no 'b' or 'a' and are left out" in target.notes
    assert Target.from_json(target.to_json()) == target


def test_classes_cannot_be_one_of_several_targets():
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    with pytest.raises(TableError, match="must all be numbers, but 'b' has classes; fit a model of its own for it"):
        Target.fit(frame, ["a", "b"])
    with pytest.raises(TableError, match="targets must be different columns"):
        Target.fit(frame, ["a", "a"])


def test_records_of_one_name_can_still_be_read():
    record = {"schema": 1, "name": "y", "task": "classification", "labels": ["a", "b"], "notes": []}
    assert Target.from_json(record) == Target(("y",), "classification", ("a", "b"))
    with pytest.raises(TableError, match="must have schema 1 or 2, but this one has 3"):
        Target.from_json(record | {"schema": 3})
