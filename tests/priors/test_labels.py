"""Labels as real targets: centred columns, in which a weight counts as repetition, and logarithms of Gamma variates."""

import pytest
import torch
from torch.testing import assert_close

from degp.priors.labels import as_log_gamma, as_real

LABELS = torch.tensor([0, 2, 1, 0, 2, 2])


def test_columns_are_centred_and_differ_by_four():
    real = as_real(LABELS, 4)
    assert_close(real.sum(0), torch.zeros(4, dtype=torch.float64))
    assert_close(real.amax(0) - real.amin(0), torch.tensor([4.0, 4, 4, 0], dtype=torch.float64))
    assert torch.equal(real[:, :3].argmax(1), LABELS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_weight_counts_as_repetition(dtype):
    counts = torch.tensor([1, 3, 0, 2, 1, 1])
    repeated = as_real(LABELS.repeat_interleave(counts), 3)
    assert_close(as_real(LABELS, 3, counts.to(dtype)).repeat_interleave(counts, dim=0), repeated)


@pytest.mark.parametrize("concentration", [0.03, 1.0])
def test_the_log_normal_has_the_moments_of_the_gamma(concentration):
    """Mean and variance of Gamma(α, 1) are α."""
    mean, variance = as_log_gamma(LABELS, 3, concentration)
    alpha = concentration + torch.nn.functional.one_hot(LABELS, 3).double()
    assert_close((mean + variance / 2).exp(), alpha)
    assert_close(variance.expm1() * (2 * mean + variance).exp(), alpha)
