"""Principal components of features, with more points than features and with fewer."""

import pytest
import torch
from torch.testing import assert_close

from degp import Batch
from degp.attached.components import scaled_components
from tests.fixtures import normal, seeded


@pytest.mark.parametrize("N, D", [(30, 6), (6, 30), (8, 8)])
def test_components_are_those_of_the_singular_value_decomposition(N, D):
    x = normal(N, D) * torch.linspace(1, 3, D, dtype=torch.float64) + 5
    layers, _ = scaled_components(Batch(x, x[:, :1]), 4, generator=seeded())
    directions = torch.nn.functional.normalize(layers[0].weight)
    _, _, expected = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    assert_close((directions @ expected[:4].mT).abs(), torch.eye(4).double(), atol=1e-8, rtol=0)
    assert_close(layers[0](x).mean(0), torch.zeros(4).double(), atol=1e-8, rtol=0)


def test_wide_features_of_few_points_need_no_matrix_of_features():
    """Its 400,000² numbers would take 1.3 TB."""
    x = torch.randn(4, 400_000, generator=torch.Generator().manual_seed(0))
    layers, _ = scaled_components(Batch(x, x[:, :1]), 128, generator=seeded())
    assert layers[0](x).shape == (4, 3)
