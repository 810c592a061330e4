"""The exact posterior of the demo has the prior of its networks."""

import pytest
import torch
from torch.testing import assert_close

from degp import Ensemble
from degp.demo import WEIGHTS, _network, exact_posterior


@pytest.mark.parametrize("widths", [(), (128,), (128, 128)])
def test_the_exact_prior_is_the_covariance_of_random_networks(widths):
    generator = torch.Generator().manual_seed(0)
    networks = Ensemble(lambda: WEIGHTS.initialise(_network(widths), generator=generator), 2000)
    x = torch.tensor([[-0.5], [0.2], [1.0]])
    with torch.no_grad():
        f = networks(x).squeeze(-1).double()  # (M, N)
    exact = exact_posterior(widths).kernel(x, x)
    assert_close(f.mT @ f / len(f), exact, rtol=0, atol=0.1 * exact.diagonal().max().item())
