"""The paper's one-dimensional problem: eight noisy points of sin 2x, the last one an outlier."""

import torch

from degp.typing import Batch

__all__ = ["NOISE_VARIANCE", "sine"]

NOISE_VARIANCE = 0.04
TARGETS = (-0.3020, -0.7766, -0.9647, -0.2867, 0.3554, 1.0375, 0.8193, -1.1549)


def sine() -> Batch:
    """Eight points in [−1.5, 1.5] of y = sin 2x + ε with noise of standard deviation 0.2, in float32.

    Example:
        >>> sine().inputs.shape
        torch.Size([8, 1])
    """
    inputs = torch.linspace(-1.5, 1.5, len(TARGETS))[:, None]
    return Batch(inputs, torch.tensor(TARGETS)[:, None], population=len(TARGETS))
