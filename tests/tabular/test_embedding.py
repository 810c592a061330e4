"""Piecewise-linear embeddings: the pieces of a feature add up to it, and the feature comes first."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from degp.tabular.embedding import ALL_PIECES, MOST_PIECES, Embedding
from tests.fixtures import normal


@given(rows=st.integers(5, 200), columns=st.integers(1, 6), seed=st.integers(0, 99))
def test_pieces_add_up_to_the_feature_between_its_extremes(rows, columns, seed):
    x = normal(rows, columns, seed=seed)
    embedding = Embedding.fit(x)
    outputs = embedding.apply(x)
    assert_close(outputs[:, :columns], x)
    widths = torch.tensor(embedding.ends, dtype=x.dtype) - torch.tensor(embedding.starts, dtype=x.dtype)
    total = x.amin(0).repeat(rows, 1)
    total.index_add_(1, torch.tensor(embedding.places), outputs[:, columns:] * widths)
    assert_close(total, x)


def edges_one_by_one(values, count):
    """All distinct values; or quantiles by their definition, linear between the two nearest order statistics."""
    ordered = sorted(values)
    if len(set(ordered)) <= count + 1:
        return sorted(set(ordered))
    ranks = [k * (len(ordered) - 1) / count for k in range(count + 1)]
    below = [min(int(rank), len(ordered) - 2) for rank in ranks]
    quantiles = [ordered[i] + (rank - i) * (ordered[i + 1] - ordered[i]) for i, rank in zip(below, ranks, strict=True)]
    return sorted(set(quantiles))


@pytest.mark.parametrize("rows", [10, 40, 203])
def test_pieces_are_those_of_their_definition(rows):
    """The share of each interval between two edges that lies below the value, number by number."""
    x, new = normal(rows, 2), 2 * normal(7, 2, seed=1)
    outputs = Embedding.fit(x).apply(new)
    for n, row in enumerate(new.tolist()):
        expected = list(row)
        for d, value in enumerate(row):
            edges = edges_one_by_one(x[:, d].tolist(), MOST_PIECES)
            expected += [min(max((value - a) / (b - a), 0.0), 1.0) for a, b in pairwise(edges)]
        assert outputs[n].tolist() == pytest.approx(expected)


def test_every_piece_ends_where_the_next_begins():
    embedding = Embedding.fit(normal(400, 2))
    assert embedding.places == (0,) * MOST_PIECES + (1,) * MOST_PIECES
    assert embedding.starts[1:MOST_PIECES] == embedding.ends[: MOST_PIECES - 1]


def test_beyond_the_training_rows_pieces_are_constant():
    embedding = Embedding.fit(torch.linspace(0, 1, 50, dtype=torch.float64)[:, None])
    far = embedding.apply(torch.tensor([[-5.0], [-1.0], [2.0], [9.0]], dtype=torch.float64))[:, 1:]
    assert_close(far, torch.tensor([[0.0], [0.0], [1.0], [1.0]], dtype=torch.float64).expand_as(far))


def test_few_distinct_values_are_the_edges_and_too_few_have_no_pieces():
    x = torch.tensor([[0.0, 1.0], [2.0, 1.0], [3.0, 0.0], [7.0, 0.0], [7.0, 0.0]])
    embedding = Embedding.fit(x)
    assert embedding == Embedding(2, (0, 0, 0), (0.0, 2.0, 3.0), (2.0, 3.0, 7.0))
    assert_close(embedding.apply(x[:2]), torch.tensor([[0.0, 1, 0, 0, 0], [2, 1, 1, 0, 0]]))


def test_a_wide_table_has_fewer_pieces_per_feature_and_a_very_wide_one_has_none():
    assert len(Embedding.fit(normal(100, 32)).places) == ALL_PIECES
    assert Embedding.fit(normal(100, 100)) == Embedding(100)


def test_the_pieces_of_a_feature_are_one_group():
    embedding = Embedding(3, (0, 0, 2), (0.0, 1.0, 0.0), (1.0, 2.0, 1.0))
    assert embedding.groups([0, 1, 1]) == (0, 1, 1, 2, 2, 3)
    assert embedding.sources == (0, 1, 2, 0, 0, 2)
    assert Embedding(3).groups([0, 1, 1]) == (0, 1, 1)


@pytest.mark.parametrize("embedding", [Embedding(2), Embedding(2, (1,), (0.0,), (1.0,))])
def test_other_columns_are_an_error(embedding):
    with pytest.raises(ValueError, match=r"the 2 features that were fitted, but the shape is \(4, 3\)"):
        embedding.apply(torch.zeros(4, 3))
