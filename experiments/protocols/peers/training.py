"""Training of the peers' networks: standardised targets, mini-batches, and the best weights on validation rows."""

import math
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from experiments.protocols.peers.contract import Task

__all__ = ["VALIDATION", "Scale", "floats", "train"]

VALIDATION = 0.15
BATCH = 256
MAX_EPOCHS = 1000


class Scale:
    """Standardises real targets, and leaves classes as they are."""

    def __init__(self, targets: Shaped[np.ndarray, "N"], task: Task) -> None:
        self.classes = task.num_classes is not None
        self.mean, self.std = (0.0, 1.0) if self.classes else (float(targets.mean()), float(targets.std()))

    def apply(self, targets: Shaped[np.ndarray, "N"]) -> Shaped[Tensor, "..."]:
        """Classes (N,), or numbers (N, 1)."""
        return torch.from_numpy(targets) if self.classes else floats((targets - self.mean) / self.std)[:, None]

    def undo(self, values: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
        """In the units of the targets."""
        return self.mean + self.std * values


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Int[Tensor, "B"]], Tensor],
    score: Callable[[], float],
    *,
    num_rows: int,
    patience: int,
    clip: float = math.inf,
) -> None:
    """Until `patience` epochs bring no lower score; the weights of the lowest are kept.

    Args:
        loss: of a batch of training rows, given by their indices.
        score: on validation rows; called in evaluation mode, without gradients.
        clip: norm of the gradient at most.
    """
    best, best_weights, best_epoch = math.inf, deepcopy(model.state_dict()), 0
    for epoch in range(MAX_EPOCHS):
        model.train()
        for rows in torch.randperm(num_rows).split(BATCH):
            optimizer.zero_grad()
            loss(rows).backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            current = score()
        if current < best:
            best, best_weights, best_epoch = current, deepcopy(model.state_dict()), epoch
        if epoch - best_epoch >= patience:
            break
    model.load_state_dict(best_weights)


def floats(values: Shaped[np.ndarray, "..."]) -> Float[Tensor, "..."]:
    """A copy in float32."""
    return torch.tensor(np.asarray(values), dtype=torch.float32)
