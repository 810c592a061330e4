"""An agent plays rounds, and what came of it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp.bandits.agents import Agent
from degp.bandits.environments import Rounds
from degp.training.progress import progress_bar


@dataclass(frozen=True)
class Played:
    """What an agent did in N rounds.

    Attributes:
        actions: that it took.
        rewards: that it got.
        regrets: what each action lost on average against the best one.
        uniform_regrets: what uniform choice would have lost on average.
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
    """Lets an agent act and observe, round by round.

    Args:
        progress: a progress bar; None shows it where the output is a terminal.
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
