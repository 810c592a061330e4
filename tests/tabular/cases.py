"""Tables that several tests draw their cases from."""

import warnings
from datetime import date

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from degp.tabular import TableWarning
from degp.tabular.model import estimator_for, prepare
from degp.tabular.saving import Model

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
def good_frames(draw, max_rows=30):
    """A frame that can be learned from: one column of numbers is sure to vary."""
    kinds = ("modest floats", "booleans", "words", "yes and no", "dates")
    frame = draw(frames(kinds, min_rows=3, max_rows=max_rows))
    return frame.assign(sure=np.arange(len(frame)) % 3 * 1.5)


def houses(rows=60):
    """Numbers, missing cells, booleans, categories and dates."""
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


QUICK = {"members": 3, "hidden_layers": (8,), "steps": 75, "random_state": 0}


def fitted(frame, target, *, settings=QUICK, **options):
    """A model of a frame, trained for a moment."""
    rows = prepare(frame, target, **options)
    estimator = estimator_for(rows.target, settings).fit(rows.inputs, rows.targets)
    return Model(estimator, rows.target, {})


def transform_quietly(preprocessing, frame):
    """The transformed frame, without warnings about its cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        return preprocessing.transform(frame)
