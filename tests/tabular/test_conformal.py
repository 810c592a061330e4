"""Conformal quantiles and sets of classes: their definitions, and that they cover."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degp.tabular.conformal import as_levels, conformal_quantile, mass_above, probable_set

LEVELS = st.floats(0.001, 0.999)
PROBABILITIES = (
    st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5)
    .filter(sum)
    .map(lambda values: np.array([values]) / sum(values))
)


@given(PROBABILITIES, LEVELS)
def test_a_set_is_the_smallest_of_its_probability(probabilities, level):
    (inside,), (p,) = probable_set(probabilities, level), probabilities
    assert p[inside].sum() >= level - 1e-12
    for size in range(inside.sum()):
        assert all(p[list(other)].sum() < level + 1e-12 for other in itertools.combinations(range(len(p)), size))


@given(PROBABILITIES, LEVELS, LEVELS)
def test_sets_grow_with_the_level_and_are_never_empty(probabilities, one, other):
    small, large = (probable_set(probabilities, level) for level in sorted((one, other)))
    assert small.any(1).all() and not (small & ~large).any()


def test_mass_above_is_that_of_the_more_probable_classes():
    np.testing.assert_allclose(mass_above(np.array([[0.2, 0.5, 0.3]])), [[0.8, 0.0, 0.5]])
    np.testing.assert_allclose(mass_above(np.array([[0.25, 0.5, 0.25]])), [[0.5, 0.0, 0.75]])  # equals: by column


def test_a_conformal_quantile_bounds_a_new_score_at_any_sample_size():
    """Of N + 1 exchangeable scores the last is below the quantile of the others with probability ≥ level."""
    random = np.random.default_rng(0)
    for n, level in [(4, 0.5), (9, 0.9), (19, 0.8)]:
        draws = random.standard_normal((20_000, n + 1))
        below = [new <= conformal_quantile(np.sort(old), level) for *old, new in draws]
        expected = np.ceil((n + 1) * level) / (n + 1)
        assert abs(np.mean(below) - expected) < 0.02


def test_too_few_rows_have_no_finite_quantile():
    assert conformal_quantile(np.arange(9.0), 0.9) == 8.0
    assert conformal_quantile(np.arange(8.0), 0.9) == np.inf
    assert conformal_quantile(np.empty(0), 0.1) == np.inf


@pytest.mark.parametrize(
    "level, message",
    [
        (90.0, r"a probability between 0 and 1, but it is 90\.0; 0\.9 is a 90 % interval"),
        ([0.5, 1.0], r"but it is 1\.0"),
        (float("nan"), "but it is nan"),
        ([], r"a number or a list of numbers, but its shape is \(0,\)"),
        (np.array([[0.5]]), r"but its shape is \(1, 1\)"),
    ],
)
def test_a_bad_level_is_reported(level, message):
    with pytest.raises(ValueError, match=message):
        as_levels(level)
