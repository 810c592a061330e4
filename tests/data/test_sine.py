"""The paper's eight points."""

import torch
from torch.testing import assert_close

from degp.data import sine
from degp.data.toy import NOISE_VARIANCE


def test_all_points_but_the_last_follow_the_sine():
    batch = sine()
    assert_close(batch.inputs, torch.linspace(-1.5, 1.5, 8)[:, None])
    off = (batch.targets - (2 * batch.inputs).sin()).abs().flatten() / NOISE_VARIANCE**0.5
    assert off[:-1].max() < 3 < off[-1]
