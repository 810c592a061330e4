"""Contextual bandits to play: rounds of contexts, and what every action would have paid.

An agent in the world needs no environment, only `act` and `observe`. An environment is for trying agents out: it knows
the rewards of the actions that were not taken.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from degp import data
from degp.bandits.problem import Problem
from degp.data import Standardiser

EATEN_WELL, EATEN_ILL = 5.0, -35.0
COVERTYPE_QUANTITIES = 10  # columns that measure something; the other 44 say yes or no


@dataclass(frozen=True)
class Rounds:
    """N rounds, their luck drawn beforehand, so that every agent that plays them meets the same.

    Attributes:
        contexts: what is seen before an action is chosen.
        rewards: what each action pays in this round.
        expected: what each action pays on average, given the context.
    """

    contexts: Float[Tensor, "N D"]
    rewards: Float[Tensor, "N C"]
    expected: Float[Tensor, "N C"]

    def __len__(self) -> int:
        return len(self.contexts)

    def regret(self, actions: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
        """max_a E r(a) − E r(aₙ): what was lost on average against the best action, round by round."""
        return self.expected.amax(1) - self.expected.gather(1, actions[:, None]).squeeze(1)

    def uniform_regret(self) -> Float[Tensor, "N"]:
        """The same for actions that are chosen uniformly, on average: the yardstick of relative regret."""
        return self.expected.amax(1) - self.expected.mean(1)


@runtime_checkable
class Environment(Protocol):
    """A contextual bandit that can be played: write these two to bring your own."""

    @property
    def problem(self) -> Problem:
        """How many features and actions there are."""
        ...

    def rounds(self, count: int, *, generator: torch.Generator | None = None) -> Rounds:
        """Draws contexts and rewards for so many rounds."""
        ...


@dataclass(frozen=True)
class TableBandit:
    """Rows of a table as contexts; each action pays one of K outcomes, all equally likely.

    Attributes:
        contexts: the table.
        outcomes: what each action may pay at each row.
    """

    contexts: Float[Tensor, "N D"]
    outcomes: Float[Tensor, "K N C"]

    @property
    def problem(self) -> Problem:
        """How many features and actions there are."""
        return Problem(self.contexts.shape[1], self.outcomes.shape[2])

    def rounds(self, count: int, *, generator: torch.Generator | None = None) -> Rounds:
        """Rows in random order, each once before any comes again."""
        K, N, C = self.outcomes.shape
        passes = [torch.randperm(N, generator=generator) for _ in range(0, count, N)]
        rows = torch.cat(passes)[:count] if passes else torch.empty(0, dtype=torch.long)
        luck = torch.randint(K, (count,), generator=generator)
        return Rounds(self.contexts[rows], self.outcomes[luck, rows], self.outcomes.mean(0)[rows])


def classification(inputs: Float[Tensor, "N D"], labels: Int[Tensor, "N"]) -> TableBandit:
    """Naming the class of a row: 1 for the right one, 0 for any other, and the right one is never told."""
    return TableBandit(inputs, torch.nn.functional.one_hot(labels.long()).to(inputs)[None])


def mushroom() -> TableBandit:
    """To eat (1) or to pass (0): passing pays 0, an edible mushroom 5, a poisonous one 5 or −35, each half the time.

    The contexts are 22 attributes, one-hot. The expected reward of eating a poisonous mushroom is −15.
    """
    table = data.mushroom()
    poisonous = table.targets.bool()
    lucky = torch.full((len(table),), EATEN_WELL)
    unlucky = torch.where(poisonous, EATEN_ILL, EATEN_WELL)
    passing = torch.zeros(len(table))
    return TableBandit(table.inputs, torch.stack([torch.stack([passing, eating], 1) for eating in (lucky, unlucky)]))


def covertype() -> TableBandit:
    """Naming the cover type of a patch of forest, one of seven, for a reward of 1.

    The ten quantities are standardised over the table. The 44 indicators stay 0 or 1: some soils are so rare that
    standardised they would be several hundred.
    """
    table = data.covertype()
    quantities, indicators = table.inputs.tensor_split([COVERTYPE_QUANTITIES], dim=1)
    scaled = Standardiser.fit(quantities).apply(quantities)
    return classification(torch.cat([scaled, indicators], dim=1), table.targets)
