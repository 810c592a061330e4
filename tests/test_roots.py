"""Roots of Gram matrices: with the jitter that was asked for, or with a larger one, and a warning that says so."""

import math
import re
import warnings

import jaxtyping
import pytest
import torch
from torch.testing import assert_close

from degp.roots import NumericalWarning, cholesky, inverse, regular_root
from tests.fixtures import normal


def random_gram(N):
    root = normal(N, N + 2, seed=7)
    return root @ root.mT / N + 0.1 * torch.eye(N, dtype=torch.float64)


@pytest.mark.parametrize("N", [63, 64, 128])
def test_a_root_is_that_of_the_matrix_whatever_its_size(N):
    gram = random_gram(N)
    root = cholesky(gram, jitter=0.1)
    expected = torch.linalg.cholesky(gram + 0.1 * gram.diagonal().mean() * torch.eye(N, dtype=gram.dtype))
    assert_close(root, expected)


def test_the_inverse_of_a_root_undoes_it():
    root = cholesky(random_gram(5))
    assert_close(inverse(root) @ root, torch.eye(5, dtype=torch.float64))


def test_repeated_points_get_a_jitter_that_is_stated():
    x = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0]).double()
    gram = 4.0 * torch.exp(-(x[:, None] - x[None]).square())
    message = r"5 points was not positive definite with a jitter of 0; 1e-10 × its mean diagonal \(4e-10\) was added"
    with pytest.warns(NumericalWarning, match=message):
        root = cholesky(gram - 1e-15 * torch.eye(5))
    assert_close(root @ root.mT, gram, rtol=0, atol=1e-8)


def test_jitter_asked_for_is_added_without_a_warning():
    gram = 4.0 * torch.ones(5, 5, dtype=torch.float64)
    with warnings.catch_warnings(action="error"):
        root = cholesky(gram, jitter=0.05)
    assert_close(root @ root.mT, gram + 0.2 * torch.eye(5))


@pytest.mark.parametrize("smallest, added", [(-3e-9, 1e-8), (-3e-6, 1e-5)])
def test_jitter_is_raised_tenfold_until_it_suffices(smallest, added):
    rotation = torch.linalg.qr(normal(4, 4)).Q
    values = torch.tensor([smallest, 1.0, 1.0, 2.0 - smallest]).double()  # their mean is 1
    gram = rotation @ torch.diag(values) @ rotation.mT
    with pytest.warns(NumericalWarning, match=f"{added:g} × its mean diagonal"):
        root = cholesky(gram)
    assert regular_root(gram)[1] == pytest.approx(added)
    assert_close(root @ root.mT, gram + added * torch.eye(4), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gram_that_is_not_finite_is_refused(bad):
    gram = torch.eye(3)
    gram[1, 1] = bad
    with pytest.raises(ValueError, match="must be finite, but 1 of its 9 entries are NaN or infinite"):
        cholesky(gram)


def test_indefinite_gram_is_refused():
    with pytest.raises(ValueError, match=r"eigenvalues reach from -1 to 3 \(jitter 0\); is the kernel symmetric"):
        cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))


def test_negative_jitter_is_refused():
    with pytest.raises(ValueError, match=r"jitter must not be negative, but it is -0\.1"):
        cholesky(torch.eye(2), jitter=-0.1)
    with pytest.raises(ValueError, match="jitter must not be negative, but it is nan"):
        cholesky(-torch.eye(2), jitter=math.nan)


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_a_matrix_that_is_not_square_is_refused(shape, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its own message comes first
    with pytest.raises(ValueError, match=re.escape(f"one column per point, but its shape is {shape}; does the kernel")):
        cholesky(torch.ones(shape))
