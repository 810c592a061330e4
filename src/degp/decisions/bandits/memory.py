"""The rounds an agent has observed, in tensors that grow by doubling."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from degp.decisions.bandits.feedback import observations
from degp.decisions.bandits.problem import Problem
from degp.typing import Batch

__all__ = ["Memory"]


class Memory:
    """Contexts, actions and rewards, one row per round."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self.problem = problem
        self._contexts = torch.empty(64, problem.num_features, device=device)
        self._actions = torch.empty(64, dtype=torch.long, device=device)
        self._rewards = torch.empty(64, device=device)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, context: Float[Tensor, "D"], action: int, reward: float) -> None:
        """Adds a round."""
        if self._count == len(self._rewards):
            self._contexts, self._actions, self._rewards = (
                torch.cat([column, column.new_empty(max(1, len(column)), *column.shape[1:])])
                for column in (self._contexts, self._actions, self._rewards)
            )
        self._contexts[self._count] = context
        self._actions[self._count] = action
        self._rewards[self._count] = reward
        self._count += 1

    def batch(self) -> Batch:
        """All rounds as inputs and partly observed targets."""
        contexts, actions, rewards = self.columns().values()
        return Batch(contexts, observations(actions, rewards, self.problem.num_actions))

    def columns(self) -> dict[str, Tensor]:
        """All rounds by column."""
        columns = {"contexts": self._contexts, "actions": self._actions, "rewards": self._rewards}
        return {name: column[: self._count] for name, column in columns.items()}

    def empty(self, rounds: int) -> dict[str, Tensor]:
        """Uninitialised columns of this many rounds."""
        return {name: column.new_empty(rounds, *column.shape[1:]) for name, column in self.columns().items()}

    def restore(self, columns: Mapping[str, Tensor]) -> None:
        """Replaces the content by what `columns` returned."""
        device = self._rewards.device
        self._contexts, self._actions, self._rewards = (
            columns[name].to(device) for name in ("contexts", "actions", "rewards")
        )
        self._count = len(self._rewards)
