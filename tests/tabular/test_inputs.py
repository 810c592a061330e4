"""Tables as they are: what `fit` and `predict` accept, and that its form does not change what comes out."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from degp.sklearn import DEGPClassifier, DEGPRegressor
from degp.tabular import Preprocessing, TableError, TableWarning
from degp.tabular.model import prepare
from tests.tabular.cases import houses

QUICK = {"members": 3, "hidden_layers": (8,), "steps": 3, "random_state": 0}
X = np.random.default_rng(0).normal(size=(40, 3))
y = X[:, 0] + 0.1 * X[:, 1]


def table(rows=60):
    return houses(rows).drop(columns="price")


@pytest.fixture(scope="module")
def plain():
    """A regressor of plain numbers in an array."""
    return DEGPRegressor(**QUICK).fit(X, y)


@pytest.fixture(scope="module")
def model():
    """A regressor of a table with everything in it."""
    return DEGPRegressor(**QUICK).fit(table(), houses()["price"])


# Plain numbers.


@pytest.mark.parametrize(
    "form",
    [
        lambda a: pd.DataFrame(a, columns=list("abc")),
        pd.DataFrame,
        lambda a: a.astype(object),
        lambda a: a.tolist(),
        np.asfortranarray,
        lambda a: pd.DataFrame(a, columns=list("abc")).astype("Float64"),
        sparse.csr_array,
        sparse.csc_matrix,
    ],
    ids=["frame", "frame without names", "objects", "lists", "by column", "nullable", "csr", "csc"],
)
def test_numbers_are_the_same_in_any_form(form, plain):
    other = DEGPRegressor(**QUICK).fit(form(X), y)
    np.testing.assert_array_equal(other.predict(form(X), return_std=True), plain.predict(X, return_std=True))


def test_numbers_are_predicted_as_their_standardisation_says(plain):
    """The path of plain numbers: nothing but (x − mean) / std, in float64."""
    assert plain.preprocessing_.is_plain
    np.testing.assert_array_equal(plain.preprocessing_.transform(pd.DataFrame(X, columns=["x0", "x1", "x2"])), X)


@pytest.mark.parametrize("frame, target", [(pd.DataFrame(X, columns=list("abc")), y), (table(), houses()["price"])])
def test_the_order_of_columns_is_irrelevant(frame, target):
    fitted = DEGPRegressor(**QUICK).fit(frame, target)
    shuffled = frame[list(reversed(frame.columns))]
    np.testing.assert_array_equal(fitted.predict(shuffled), fitted.predict(frame))


def test_rows_are_those_of_the_call_whatever_their_index(model):
    frame = table()
    np.testing.assert_array_equal(
        model.predict(frame.iloc[20:40]), model.predict(frame.iloc[20:40].set_axis(list("abcdefghijklmnopqrst")))
    )


# Everything else goes through the preprocessing of the command line.


def test_a_table_is_preprocessed_as_by_the_command_line(model):
    rows = prepare(houses(), "price")
    same = DEGPRegressor(**QUICK).fit(rows.inputs, rows.targets)
    np.testing.assert_array_equal(same.predict(table()), model.predict(table()))
    assert model.preprocessing_.columns == rows.preprocessing.columns


def test_missing_numbers_in_an_array_are_marked():
    holes = np.where(np.arange(40) % 5, X[:, 0], np.nan)
    fitted = DEGPRegressor(**QUICK).fit(np.column_stack([holes, X[:, 1:]]), y)
    assert fitted.preprocessing_.features == ("x0", "x0 is missing", "x1", "x2")
    assert np.isfinite(fitted.predict([[np.nan, 0.0, 0.0], [1.0, 2.0, 3.0]])).all()


def test_text_in_an_array_is_a_category():
    cells = np.column_stack([X[:, 0].astype(object), np.where(X[:, 1] > 0, "warm", "cold")])
    fitted = DEGPRegressor(**QUICK).fit(cells, y)
    assert set(fitted.preprocessing_.features) == {"x0", "x1 = cold", "x1 = warm"}
    assert fitted.predict([[0.5, "warm"]]) != fitted.predict([[0.5, "cold"]])


def test_a_frame_of_another_library_is_converted():
    arrow = pytest.importorskip("pyarrow")
    frame = table().assign(sold=lambda rows: pd.to_datetime(rows["sold"]))
    fitted = DEGPRegressor(**QUICK).fit(arrow.Table.from_pandas(frame), houses()["price"])
    same = DEGPRegressor(**QUICK).fit(frame, houses()["price"])
    np.testing.assert_array_equal(fitted.predict(arrow.Table.from_pandas(frame)), same.predict(frame))


def test_a_frame_that_converts_itself_is_converted(model):
    class Frame:
        columns = ("any",)

        def to_pandas(self):
            return table()

    np.testing.assert_array_equal(model.predict(Frame()), model.predict(table()))


# New tables.


def test_unusual_cells_of_new_rows_are_counted(model):
    new = table(3).assign(city=["Rome", "Oslo", "Rome"], størrelse=[np.nan, 90.0, 80.0], pool=1)
    with pytest.warns(TableWarning) as caught:
        model.predict(new)
    messages = " ".join(str(warning.message) for warning in caught)
    assert "'city' has 2 cells in categories that training has not seen, such as 'Rome'" in messages
    assert "'størrelse' has 1 missing cells, but had none in training" in messages
    assert "columns that training did not have: 'pool'; they are ignored" in messages


def test_a_missing_number_is_filled_with_the_median(plain):
    with pytest.warns(TableWarning, match="'x1' has 1 missing cells"):
        filled = plain.predict([[0.3, np.nan, 1.0]])
    np.testing.assert_array_equal(filled, plain.predict([[0.3, np.median(X[:, 1]), 1.0]]))


def test_new_tables_of_another_form_are_refused(model, plain):
    with pytest.raises(TableError, match=r"must have the columns 'age', .*did you mean 'Age' for 'age'"):
        model.predict(table().rename(columns={"age": "Age"}))
    with pytest.raises(TableError, match=r"column 'age' must have finite numbers .* but row 2 .* has 'old'"):
        model.predict(table(4).assign(age=[1, 2, "old", 3]))
    with pytest.raises(ValueError, match="X has 2 features, but DEGPRegressor is expecting 3 features as input"):
        plain.predict(X[:, :2])
    with pytest.raises(ValueError, match="Input X contains infinity"):
        plain.predict(np.where(X > 2, np.inf, X))
    with pytest.raises(ValueError, match="encoded by the model's own preprocessing"):
        plain.predict(model.preprocessing_.encode(table()))


def test_a_table_without_rows_or_columns_is_refused(plain):
    for frame in (pd.DataFrame(columns=["a"]), pd.DataFrame(index=[0, 1])):
        with pytest.raises(TableError, match=r"must have rows and columns, but .*its shape is"):
            plain.predict(frame)


def test_names_are_kept_as_scikit_learn_does(model, plain):
    assert list(model.feature_names_in_) == list(table().columns) and model.n_features_in_ == 5
    assert not hasattr(plain, "feature_names_in_") and plain.n_features_in_ == 3
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(table().to_numpy(dtype=object)), model.predict(table()))


def test_columns_left_out_are_named():
    frame = table().assign(id=np.arange(60), one=1)
    with pytest.warns(TableWarning, match="'id': left out, it numbers the rows; 'one': left out, every row has the"):
        fitted = DEGPRegressor(**QUICK).fit(frame, houses()["price"])
    assert fitted.feature_relevance_["id"] == fitted.feature_relevance_["one"] == 0
    np.testing.assert_array_equal(fitted.predict(table()), fitted.predict(frame))  # they are not needed


# Targets.


@pytest.mark.parametrize(
    "labels",
    [
        lambda words: pd.Series(words, dtype="category"),
        lambda words: pd.Series(words, name="size"),
        lambda words: pd.Series(words, dtype=object),
        lambda words: pd.DataFrame({"size": words})["size"],
        list,
    ],
    ids=["categories", "text", "objects", "column", "list"],
)
def test_labels_are_the_same_in_any_form(labels):
    words = np.where(X[:, 0] > 0.5, "high", np.where(X[:, 0] < -0.5, "low", "middle"))
    fitted, same = DEGPClassifier(**QUICK).fit(X, labels(words)), DEGPClassifier(**QUICK).fit(X, words)
    assert fitted.classes_.tolist() == ["high", "low", "middle"]
    np.testing.assert_array_equal(fitted.predict_proba(X), same.predict_proba(X))
    assert set(fitted.predict(X)) <= set(words)


def test_boolean_labels_stay_boolean():
    assert DEGPClassifier(**QUICK).fit(X, pd.Series(X[:, 0] > 0)).predict(X).dtype == bool


def test_a_missing_target_is_reported():
    labels = np.where(X[:, 0] > 0, "a", "b").astype(object)
    labels[3] = None
    with pytest.raises(ValueError, match="y must have a class for each row, but row 3 has none; leave it out"):
        DEGPClassifier(**QUICK).fit(X, labels)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        DEGPRegressor(**QUICK).fit(X, np.where(X[:, 0] > 0, y, np.nan))


# Groups.


def test_the_columns_of_a_category_share_one_relevance_and_one_scale():
    random = np.random.default_rng(0)
    city = random.choice(["a", "b", "c", "rare"], 300, p=[0.5, 0.3, 0.17, 0.03])
    frame = pd.DataFrame({"x": random.normal(size=300), "city": city, "noise": random.normal(size=300)})
    effect = frame["city"].map({"a": 2.0, "b": -2.0, "c": 0.0, "rare": 1.0})
    fitted = DEGPRegressor(**QUICK).fit(frame, effect + frame["x"] + 0.1 * random.normal(size=300))
    assert fitted.preprocessing_.groups == (0, 1, 1, 1, 1, 2)
    relevance, std = fitted.relevance_, np.array(fitted.input_scaling_.std)
    assert len(set(relevance[1:5])) == 1 and len(set(std[1:5])) == 1
    by_column = fitted.feature_relevance_
    np.testing.assert_allclose(list(by_column.values()), relevance[[0, 1, 5]])
    assert by_column["noise"] < 0.2 * min(by_column["x"], by_column["city"])


def test_the_inputs_of_a_column_are_grouped_by_what_they_mean():
    groups = dict(zip(*(getattr(Preprocessing.fit(table()), name) for name in ("features", "groups")), strict=True))
    assert groups["age"] != groups["age is missing"]
    assert groups["city = Oslo"] == groups["city = Bergen"] != groups["garden"]
    assert groups["sold, sine of the year"] == groups["sold, cosine of the year"] != groups["sold"]
    assert sorted(set(groups.values())) == list(range(len(set(groups.values()))))


# The contract beyond scikit-learn's own checks.


def test_tags_say_what_is_accepted():
    tags = get_tags(DEGPClassifier()).input_tags
    assert tags.allow_nan and tags.sparse and tags.categorical and tags.string


def test_tables_work_in_pipelines_and_searches():
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows.drop(columns="sold")), DEGPRegressor(**QUICK))
    search = GridSearchCV(pipeline, {"degpregressor__members": [2, 3]}, cv=2).fit(table(), houses()["price"])
    assert np.isfinite(search.predict(table())).all()
    again = clone(search.best_estimator_).fit(table(), houses()["price"])
    np.testing.assert_array_equal(again.predict(table()), search.predict(table()))


def test_labelled_tables_update_and_calibrate(model):
    frame, price = table(), houses()["price"]
    fitted = DEGPRegressor(**QUICK).fit(frame, price).conformalize(frame[::-1], price[::-1])
    assert len(fitted.conformity_) == 60
    before = np.mean((fitted.predict(frame) - price) ** 2)
    assert np.mean((fitted.update(frame, price).predict(frame) - price) ** 2) < before


def test_a_table_with_its_target_is_predicted_without_a_warning(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(houses()), model.predict(table()))


def test_text_of_pyarrow_is_text(model):
    frame = table().convert_dtypes(dtype_backend="pyarrow")
    np.testing.assert_array_equal(model.predict(frame), model.predict(table()))
    DEGPRegressor(**QUICK).fit(frame, houses()["price"])


@pytest.mark.parametrize("targets", [np.array(["a", "b"] * 20), y.astype(str), pd.date_range("2024", periods=40)])
def test_targets_that_are_no_numbers_are_refused_by_the_regressor(targets):
    with pytest.raises(ValueError, match=r"y must have numbers, but its type is .*astype.*DEGPClassifier"):
        DEGPRegressor(**QUICK).fit(X, targets)
