"""Sparse matrices become dense where there is memory, and say how much they would take where there is not."""

import numpy as np
import pytest
from scipy import sparse

from degp.tabular import sparse as module
from degp.tabular.sparse import free_memory, to_dense


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_array])
def test_a_sparse_matrix_becomes_the_same_dense_one(form):
    dense = np.where(np.arange(12).reshape(4, 3) % 2, 1.5, 0)
    np.testing.assert_array_equal(to_dense(form(dense)), dense)


def test_a_matrix_that_would_not_fit_is_refused_before_it_is_made():
    huge = sparse.csr_array((10**7, 10**6))
    with pytest.raises(
        MemoryError, match=r"10000000 rows of 1000000 columns then take 320000\.0 GB, but .* GB .* free"
    ):
        to_dense(huge)


def test_unknown_memory_refuses_nothing(monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: None)
    np.testing.assert_array_equal(to_dense(sparse.csr_array((2, 3))), np.zeros((2, 3)))


def test_free_memory_is_read_in_bytes(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  8000 kB\nMemAvailable:   2000 kB\nSwapFree: 5 kB\n")
    assert free_memory(tmp_path / "meminfo") == 2_048_000
    assert free_memory(tmp_path / "nothing") > 1e6  # another system: all of its memory
