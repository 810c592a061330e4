"""Contextual bandit environments for evaluating agents: they know the rewards of all actions."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp.data import Standardiser
from degp.decisions.bandits import Problem
from experiments.data import class_tables

__all__ = ["Rounds", "TableBandit", "classification", "covertype", "mushroom"]

EATEN_WELL, EATEN_ILL = 5.0, -35.0
COVERTYPE_QUANTITIES = 10  # numeric columns; the other 44 are indicators


@dataclass(frozen=True)
class Rounds:
    """N rounds with their rewards drawn in advance, so that all agents play the same.

    Attributes:
        contexts: seen before an action is chosen.
        rewards: of each action in this round.
        expected: expected reward of each action, given the context.
    """

    contexts: Float[Tensor, "N D"]
    rewards: Float[Tensor, "N C"]
    expected: Float[Tensor, "N C"]

    def __len__(self) -> int:
        return len(self.contexts)

    def regret(self, actions: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
        """max_a E r(a) − E r(aₙ), the expected loss against the best action, per round."""
        return self.expected.amax(1) - self.expected.gather(1, actions[:, None]).squeeze(1)

    def uniform_regret(self) -> Float[Tensor, "N"]:
        """The expected regret of uniform choice, the reference of relative regret."""
        return self.expected.amax(1) - self.expected.mean(1)


@dataclass(frozen=True)
class TableBandit:
    """Rows of a table as contexts; each action pays one of K equally likely outcomes.

    Attributes:
        contexts: the table.
        outcomes: possible rewards of each action at each row.
    """

    contexts: Float[Tensor, "N D"]
    outcomes: Float[Tensor, "K N C"]

    @property
    def problem(self) -> Problem:
        """Numbers of features and actions."""
        return Problem(self.contexts.shape[1], self.outcomes.shape[2])

    def rounds(self, count: int, *, generator: torch.Generator | None = None) -> Rounds:
        """Rows in random order, each once before any is repeated."""
        K, N, C = self.outcomes.shape
        passes = [torch.randperm(N, generator=generator) for _ in range(0, count, N)]
        rows = torch.cat(passes)[:count] if passes else torch.empty(0, dtype=torch.long)
        outcome = torch.randint(K, (count,), generator=generator)
        return Rounds(self.contexts[rows], self.outcomes[outcome, rows], self.outcomes.mean(0)[rows])


def classification(inputs: Float[Tensor, "N D"], labels: Int[Tensor, "N"]) -> TableBandit:
    """Classification as a bandit: reward 1 for the correct class, 0 for any other; the label is never revealed."""
    return TableBandit(inputs, torch.nn.functional.one_hot(labels.long()).to(inputs)[None])


def mushroom() -> TableBandit:
    """Eat (1) or pass (0): passing pays 0, an edible mushroom 5, a poisonous one 5 or −35 with equal probability.

    Contexts are 22 one-hot attributes. The expected reward of eating a poisonous mushroom is −15.
    """
    table = class_tables.mushroom()
    poisonous = table.targets.bool()
    lucky = torch.full((len(table),), EATEN_WELL)
    unlucky = torch.where(poisonous, EATEN_ILL, EATEN_WELL)
    passing = torch.zeros(len(table))
    return TableBandit(table.inputs, torch.stack([torch.stack([passing, eating], 1) for eating in (lucky, unlucky)]))


def covertype() -> TableBandit:
    """Classification of forest patches into seven cover types.

    The ten numeric columns are standardised. The 44 indicators stay 0 or 1: some are so rare that they would reach
    several hundred.
    """
    table = class_tables.covertype()
    quantities, indicators = table.inputs.tensor_split([COVERTYPE_QUANTITIES], dim=1)
    scaled = Standardiser.fit(quantities).apply(quantities)
    return classification(torch.cat([scaled, indicators], dim=1), table.targets)
