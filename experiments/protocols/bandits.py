"""Plays rounds with an agent and records actions, rewards and regrets."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp.decisions.bandits import Agent
from degp.runtime.progress import progress_bar
from experiments.data.bandits import Rounds

__all__ = ["Played", "play"]


@dataclass(frozen=True)
class Played:
    """An agent's N rounds.

    Attributes:
        actions: chosen.
        rewards: of these actions.
        regrets: expected, against the best action.
        uniform_regrets: expected, of uniform choice.
    """

    actions: Int[Tensor, "N"]
    rewards: Float[Tensor, "N"]
    regrets: Float[Tensor, "N"]
    uniform_regrets: Float[Tensor, "N"]

    @property
    def relative_regret(self) -> float:
        """100 Σ regret / Σ regret of uniform choice."""
        return 100 * float(self.regrets.double().sum() / self.uniform_regrets.double().sum())


def play(agent: Agent, rounds: Rounds, *, progress: bool | None = False) -> Played:
    """Lets an agent act and observe in every round.

    Args:
        progress: a progress bar; None shows it on a terminal.
    """
    actions = torch.empty(len(rounds), dtype=torch.long)
    with progress_bar(len(rounds), "round", progress) as bar:
        for n in range(len(rounds)):
            action = agent.act(rounds.contexts[n])
            agent.observe(rounds.contexts[n], action, float(rounds.rewards[n, action]))
            actions[n] = action
            bar.update()
    rewards = rounds.rewards.gather(1, actions[:, None]).squeeze(1)
    return Played(actions, rewards, rounds.regret(actions), rounds.uniform_regret())
