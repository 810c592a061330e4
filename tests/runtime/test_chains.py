"""A chain of convolutions as one operation equals its convolutions one by one."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from degp.runtime.kernels import chains  # noqa: F401, registers the operation

run_chain = torch.ops.degp.chain


@given(
    members=st.integers(1, 4),
    layers=st.integers(1, 4),
    images=st.integers(1, 3),
    size=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_the_operation_is_its_convolutions_one_by_one(members, layers, images, size, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(images, size, size + 1, members * 4, generator=generator, dtype=torch.float64)
    kernels = torch.randn(members, layers, 4, 3, 3, 4, generator=generator, dtype=torch.float64)
    outputs = run_chain(x, kernels)
    for own, network, result in zip(x.split(4, 3), kernels, outputs.split(4, 3), strict=True):
        y = own.permute(0, 3, 1, 2)
        for kernel in network:
            y = F.conv2d(y, kernel.permute(0, 3, 1, 2), padding=1).clamp(min=0)
        assert_close(result, y.permute(0, 2, 3, 1))


def test_the_operation_passes_torchs_checks():
    x, kernels = torch.randn(2, 4, 5, 6), torch.randn(3, 2, 2, 3, 3, 2)
    torch.library.opcheck(run_chain.default, (x, kernels))
